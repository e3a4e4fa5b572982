"""Errors over HTTP: one table from class to status, one shape of body, and the errors that only HTTP knows."""

from collections.abc import Mapping

import orjson

from caraway.apps.server.http.messages import JSON_HEADERS, HttpResponse
from caraway.dataplane.ingest.backpressure import BehindError
from caraway.errors import (
    BusyError,
    CarawayError,
    CommitError,
    CommitTypeError,
    ConflictError,
    DefinitionAttributeError,
    DefinitionError,
    DefinitionTypeError,
    ExtractorError,
    ForbiddenError,
    InvalidExprException,
    InvalidInputError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnknownEntityError,
    shortened,
)
from caraway.process.request_ids import REQUEST_ID

# The header `Retry-After` of an answer with status 503 or 429: the seconds after which a client should try again. A
# part of the server that is started again works within a few seconds.
RETRY_AFTER_S = "1"
# The most characters of an error message in an answer: enough to quote several names and to list the valid choices,
# while a long text of a client isn't sent back to it.
MAX_MESSAGE = 8_000


class UnsupportedMediaTypeError(CarawayError):
    """The body of a request is of a type that the path doesn't take."""

    code = "unsupported_media_type"


class ForeignHostError(ForbiddenError):
    """A request is addressed to a name that isn't this server's."""

    code = "foreign_host"


class ForeignSiteError(ForbiddenError):
    """A web page of another site sends a request."""

    code = "foreign_site"


class SlowBodyError(CarawayError):
    """The body of a request arrives too slowly."""

    code = "slow_body"


class CutBodyError(CarawayError):
    """The body of a request ended before it was complete, or its chunks are malformed."""

    code = "cut_body"


class DeadlineError(CarawayError):
    """A request took too long."""

    code = "deadline_exceeded"


class UnknownPathError(CarawayError):
    """There is nothing under the path of a request."""

    code = "unknown_path"


class WrongMethodError(CarawayError):
    """The path exists, but not for this method."""

    code = "wrong_method"

    def __init__(self, message: str, allowed: str) -> None:
        """Keep the methods that the path allows, for the header `Allow`."""
        super().__init__(message)
        self.allowed = allowed


class InternalError(CarawayError):
    """The server failed in a way that nobody expected; the client learns only the number of the line in the log."""

    code = "internal"

    def __init__(self, number: str) -> None:
        """Keep the number of the line in the log."""
        super().__init__(f"the server failed to answer; its log tells why under the id {number}")
        self.number = number


# The HTTP statuses of error classes; a class that isn't listed has the status of its parent.
STATUS_BY_CLASS: Mapping[type[BaseException], int] = {
    InvalidInputError: 400,
    CutBodyError: 400,
    CommitError: 400,
    CommitTypeError: 400,
    DefinitionAttributeError: 400,
    DefinitionError: 400,
    DefinitionTypeError: 400,
    InvalidExprException: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    UnknownEntityError: 404,
    UnknownPathError: 404,
    WrongMethodError: 405,
    SlowBodyError: 408,
    ConflictError: 409,
    TooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    ExtractorError: 422,
    BehindError: 429,
    BusyError: 429,
    UnavailableError: 503,
    DeadlineError: 504,
}


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error: 500 for an unexpected one."""
    return next((STATUS_BY_CLASS[kind] for kind in type(error).__mro__ if kind in STATUS_BY_CLASS), 500)


def error_response(error: CarawayError) -> HttpResponse:
    """Return the answer to a request that failed with an expected error."""
    status = status_of(error)
    headers = list(JSON_HEADERS)
    match error:
        case BehindError():
            headers.append(("retry-after", str(error.retry_after_s)))
        case UnavailableError() | BusyError():
            headers.append(("retry-after", RETRY_AFTER_S))
        case UnauthenticatedError():
            headers.append(("www-authenticate", "Bearer"))
        case WrongMethodError():
            headers.append(("allow", error.allowed))
        case _:
            pass
    return HttpResponse(status, headers, orjson.dumps(refusal(shortened(str(error), MAX_MESSAGE), error.code)))


def refusal(message: str, code: str, **more: str) -> dict[str, str]:
    """Return the body of a refusal, with the id of the request by which its log lines are found."""
    body = {"err_msg": message, "code": code, **more}
    if request_id := REQUEST_ID.get():
        body["request_id"] = request_id
    return body
