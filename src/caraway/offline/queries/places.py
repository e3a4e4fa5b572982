"""The places of results and of temporary files."""

from pathlib import Path
from urllib.parse import urlsplit

from caraway.offline.queries.model import OfflineQuery, folder_of
from caraway.process.settings.settings import Settings


def own_prefix(query_id: str) -> str:
    """Return the folder of a query's results in the server's own object store."""
    return f"{folder_of(query_id)}/output"


def place_of(query: OfflineQuery, objects_url: str) -> tuple[str, str]:
    """Return the bucket and the prefix of a query's results; for an object store that is a folder, its path."""
    if query.request.output is None:
        return objects_url, own_prefix(query.id)
    parts = urlsplit(query.request.output.url)
    return parts.netloc, parts.path.strip("/")


def spark_folder(settings: Settings) -> Path:
    """Return the folder in which queries on Spark have their folders of temporary files."""
    return settings.data_dir / "offline"
