"""The addresses of tables for libraries that open stores by `object_store`, a library of Rust."""

import orjson
from pyarrow import fs

from caraway.dataplane.sources.files.endpoints import azure_address, google_address
from caraway.dataplane.sources.files.stored import FileStore
from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import FilesConnector, S3Connector
from caraway.graph.systems import AzureSystem, FilesSystem, S3System


def object_address(
    connector: S3Connector | FilesConnector, context: SourceContext, store: FileStore, root: str
) -> tuple[str, dict[str, str] | None]:
    """Return the address of a table and the options of its store.

    Args:
        connector: The source.
        context: All else that its reader knows.
        store: The store of the source.
        root: The folder of the table in it.

    Raises:
        UnavailableError: A secret can't be looked up, or the table isn't in its folder.
        UnknownEntityError: A secret doesn't exist.
    """
    system = connector.system
    endpoint = context.endpoints.get(system.name)
    options: dict[str, str] = {}
    match system:
        case FilesSystem():
            # The store refuses files outside of its folder. But the library opens any path without the store, so the
            # prefix is checked here.
            if not store.is_inside(root):
                raise UnavailableError(f"Files {system.name}: the prefix {root} leads out of the folder {store.root}")
            return f"file://{store.root}/{root}", None
        case S3System():
            if system.access_key_id is not None and system.secret_access_key is not None:
                options["aws_access_key_id"] = context.resolve(system.access_key_id)
                options["aws_secret_access_key"] = context.resolve(system.secret_access_key)
            if endpoint is None:
                options["aws_region"] = fs.resolve_s3_region(connector.container)
            else:
                options |= {"aws_endpoint": endpoint, "aws_region": "us-east-1", "aws_allow_http": "true"}
            return f"s3://{connector.container}/{root}", options
        case AzureSystem():
            options["azure_storage_account_name"] = system.account_name
            if system.account_key is not None:
                options["azure_storage_account_key"] = context.resolve(system.account_key)
            if endpoint is not None:
                options["azure_storage_endpoint"] = azure_address(system.account_name, endpoint)
                options["azure_allow_http"] = "true"
            return f"az://{connector.container}/{root}", options
        case _:
            address = google_address(endpoint)
            if address is not None:
                # The library accepts another address, and reading without credentials, only as entries of a service
                # account key. So such a key is made here.
                key = {"gcs_base_url": address, "disable_oauth": True}
                empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
                options |= {"google_service_account_key": orjson.dumps(key | empty).decode(), "allow_http": "true"}
            return f"gs://{connector.container}/{root}", options
