"""The stores of files by the systems of connectors: S3, Google Cloud Storage, Azure and folders of the machine."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import assert_never, cast

import pyarrow as pa

from caraway.dataplane.sources.files.arrow_store import first_line, open_folder, open_s3
from caraway.dataplane.sources.files.endpoints import azure_address, google_address
from caraway.dataplane.sources.files.stored import FileStore
from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import Connector, FilesConnector, S3Connector
from caraway.graph.systems import AzureSystem, FilesSystem, GCSSystem, RegisteredSystem, S3System

# The classes of the stores whose libraries are extras. They are named and not imported, so that a server without an
# extra can read the other stores. Each takes the container, the store's name for people, its address, and on Azure its
# key.
GOOGLE = "caraway.dataplane.sources.files.google_store:GoogleStore"
AZURE = "caraway.dataplane.sources.files.azure_store:AzureStore"


def open_store(connector: Connector, context: SourceContext) -> FileStore:
    """Open the store of a connector.

    Raises:
        UnavailableError: A secret can't be looked up, the folder isn't one that sources may read, or the store can't be
            opened with the credentials that there are.
        UnknownEntityError: A secret doesn't exist.
    """
    assert isinstance(connector, S3Connector | FilesConnector)  # noqa: S101 (the reader is only that of these)
    system, container = connector.system, connector.container
    where = f"{system.kind} {system.name}, {connector.container_word} {container}"
    endpoint = context.endpoints.get(system.name)
    try:
        match system:
            case S3System():
                return open_s3(system, container, where, context, endpoint)
            case GCSSystem():
                google = cast("Callable[[str, str, str | None], FileStore]", resolve_name(GOOGLE))
                return google(container, where, google_address(endpoint))
            case AzureSystem():
                azure = cast("Callable[[str, str, str, str | None], FileStore]", resolve_name(AZURE))
                key = None if system.account_key is None else context.resolve(system.account_key)
                return azure(container, where, azure_address(system.account_name, endpoint), key)
            case FilesSystem():
                return open_folder(container, where, context)
            case RegisteredSystem():
                raise UnavailableError(f"{where}: no {system.kind} is registered under this name on the server")
            case _:
                assert_never(system)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnavailableError(f"{where} can't be opened: {first_line(error)}") from None
