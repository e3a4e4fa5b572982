"""The places of results."""

from urllib.parse import urlsplit

from caraway.offline.queries.model import OfflineQuery, folder_of


def own_prefix(query_id: str) -> str:
    """Return the folder of a query's results in the server's own object store."""
    return f"{folder_of(query_id)}/output"


def place_of(query: OfflineQuery, objects_url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a query's results; for an object store that is a folder, its path."""
    if query.request.output is None:
        return objects_url, own_prefix(query.id)
    parts = urlsplit(query.request.output.url)
    return parts.netloc, parts.path.strip("/")
