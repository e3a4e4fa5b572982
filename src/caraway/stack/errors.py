"""What can go wrong when a stack starts or runs.

    ConflictError
    ├── AlreadyRunningError          somebody else holds the data folder
    └── PortInUseError               another program listens on a port that was asked for
    UnavailableError
    ├── JavaMissingError             no Java 17 or newer
    ├── JarsError                    a Java library can't be had, or isn't what it should be
    ├── DataFolderError              the data folder can't be written, or its disk is full
    ├── PartFailedError              a part didn't become ready
    └── NotRunningError              nothing runs in the data folder

Every text says what to do.
"""

from caraway.errors import ConflictError, UnavailableError


class AlreadyRunningError(ConflictError):
    """Another process runs a stack in this data folder."""

    code = "already_running"


class PortInUseError(ConflictError):
    """A port that a setting asks for is taken."""

    code = "port_in_use"


class JavaMissingError(UnavailableError):
    """No Java that is new enough was found."""

    code = "java_missing"


class JarsError(UnavailableError):
    """Java libraries are missing, can't be fetched, or fail their check."""

    code = "jars_unavailable"


class DataFolderError(UnavailableError):
    """The data folder can't be used."""

    code = "data_folder_unusable"


class PartFailedError(UnavailableError):
    """A part of the stack ended or stayed silent before it was ready."""

    code = "part_failed"


class NotRunningError(UnavailableError):
    """There is no running stack to talk to."""

    code = "not_running"
