"""The object store as delta-rs addresses it: other addresses and options than pyarrow's, for the same places."""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit, urlunsplit

# The names in delta-rs of the options in pyarrow's addresses of S3
# (`s3://bucket/prefix?endpoint_override=...&region=...`). Both libraries read everything else, such as keys, from the
# environment.
_OPTIONS: Mapping[str, str] = {
    "endpoint_override": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "allow_http": "AWS_ALLOW_HTTP",
}


def table_address(objects_url: str, path: str) -> tuple[str, dict[str, str]]:
    """Return the address of a table below an object store, and the options with which to open it.

    Args:
        objects_url: The object store, as the setting `objects` names it: a folder, or an address.
        path: The table's path in it.
    """
    if "://" not in objects_url:
        return f"{objects_url.rstrip('/')}/{path}", {}
    parts = urlsplit(objects_url)
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options = {_OPTIONS[name]: value for name, value in given.items() if name in _OPTIONS}
    endpoint = options.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        scheme = given.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        if options["AWS_ENDPOINT_URL"].startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    return f"{url}/{path}", options
