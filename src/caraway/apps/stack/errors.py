"""The errors when a stack starts or runs.

    ConflictError
    ├── AlreadyRunningError          another process holds the data folder
    └── PortInUseError               another program listens on a port that was asked for
    UnavailableError
    ├── DataFolderError              the data folder can't be written, or its disk is full
    ├── PartFailedError              a part didn't become ready
    └── NotRunningError              nothing runs in the data folder

Every text says how to remedy the error. Errors about Java are in `caraway.dataplane.streams.java.errors`.
"""

from caraway.errors import ConflictError, UnavailableError


class AlreadyRunningError(ConflictError):
    """Another process runs a stack in this data folder."""

    code = "already_running"


class PortInUseError(ConflictError):
    """A port that a setting asks for is taken."""

    code = "port_in_use"


class DataFolderError(UnavailableError):
    """The data folder can't be used."""

    code = "data_folder_unusable"


class PartFailedError(UnavailableError):
    """A part of the stack ended or stayed silent before it was ready."""

    code = "part_failed"


class NotRunningError(UnavailableError):
    """There is no running stack to talk to."""

    code = "not_running"
