"""Hints in the errors of functions: the setting that would allow what the confinement refused."""

import errno
import socket

_NETWORK = "functions have no network here; functions.network=true (CARAWAY_FUNCTIONS__NETWORK) allows it"
_CALLS = (
    "functions can neither start processes nor administer the system here; functions.processes=true "
    "(CARAWAY_FUNCTIONS__PROCESSES) allows processes"
)
_FILES = (
    "functions read no files but Python's, write below their working directory, and change no modes, owners and times; "
    "functions.readable (CARAWAY_FUNCTIONS__READABLE) names further files"
)
_NO_WAY = {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH}
# The most errors in a chain of causes that are searched for a refusal by the confinement. Libraries make shorter
# chains, but a function may make a circular one, in which the search would never end.
_LONGEST_CHAIN = 20


def with_hint(text: str, error: BaseException) -> str:
    """Return the text of an error, with the setting that would have prevented it if the confinement caused it."""
    hint = _hint(error)
    return text if hint is None else f"{text} ({hint})"


def _hint(error: BaseException) -> str | None:
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        match cause:
            case None:
                return None
            case socket.gaierror():
                return _NETWORK
            case OSError(errno=errno.EACCES, filename=None):
                return _NETWORK
            case OSError(errno=number) if number in _NO_WAY:
                return _NETWORK
            case OSError(errno=errno.EPERM, filename=None):
                return _CALLS
            case PermissionError():
                return _FILES
        reason = getattr(cause, "reason", None)
        inner = reason if isinstance(reason, BaseException) else None
        cause = cause.__cause__ or inner or cause.__context__
    return None
