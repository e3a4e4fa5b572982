"""The tree of Caraway's exceptions.

    CarawayError                     the base of all errors that Caraway raises on purpose
    ├── DefinitionError              a decorator or operator was used wrongly (also a ValueError)
    ├── DefinitionTypeError          the same, where Python's own convention is a TypeError
    ├── DefinitionAttributeError     the same, where the API has an AttributeError: arguments that contradict each other
    ├── InvalidExprException         an expression is built or used in a way that has no meaning
    ├── CommitError                  a set of definitions that can't be committed (also a ValueError)
    ├── CommitTypeError              the same, where Python's own convention is a TypeError
    ├── InvalidInputError            a row, request or value that doesn't fit (also a ValueError)
    ├── UnknownEntityError           a dataset, feature or endpoint that isn't there (also a KeyError)
    │   └── UnknownFeatureError      a feature that isn't there (also an InvalidInputError)
    ├── TooLargeError                a request with more bytes, values or rows than one may have
    ├── ConflictError                the state of the deployment forbids the request
    ├── UnauthenticatedError         a request without a valid token
    ├── ForbiddenError               the caller's roles don't allow the request
    ├── ExtractorError               a user's function failed or returned the wrong thing
    ├── RemoteError                  the server answered with an error
    ├── NotServedError               rows or a commit aren't served yet (also a TimeoutError)
    └── UnavailableError             a part that is needed doesn't answer; trying again may help

`code` is stable and meant for programs; `caraway.apps.server` maps each error to an HTTP status.
"""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

# Messages and log lines quote at most this many characters of a text that Caraway didn't write, such as a part of a
# request or a library's error. So many are enough to recognise the text, and too few to fill logs or answers.
SHOWN_CHARACTERS = 200


def shortened(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """Return a text for a message: unchanged up to `limit` characters, else its beginning and its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def quoted(value: object) -> str:
    """Return a value for a message: its Python form, shortened if it is long."""
    text = _QUOTES.repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def meant(name: str, names: Iterable[str]) -> str:
    """Return a suggestion of the nearest of `names`, or nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _Quotes(reprlib.Repr):
    """The Python form of values; of large values only a part is formatted."""

    def __init__(self) -> None:
        """Set the sizes up to which values are formatted."""
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict = 4, 20, 20
        self.maxstring = self.maxlong = self.maxother = SHOWN_CHARACTERS

    def repr_int(self, x: int, level: int) -> str:
        """Return a number; one with more digits than Python would write is replaced by its size."""
        return super().repr_int(x, level) if x.bit_length() < MOST_BITS else f"a number of {x.bit_length():,} bits"


# Messages don't write out whole numbers of at least this many bits (some 180 digits), but say how many bits they have.
# Python takes long to format large numbers, and refuses it from 4,300 digits on by default.
MOST_BITS = 600
_QUOTES = _Quotes()


class CarawayError(Exception):
    """Base of all errors raised on purpose; `code` is stable, the text is for people."""

    code: ClassVar[str] = "error"


class DefinitionError(CarawayError, ValueError):
    """A definition is wrong; raised at the line of the decorator or operator."""

    code = "invalid_definition"


class DefinitionTypeError(CarawayError, TypeError):
    """A definition has a wrong type; raised at the line of the decorator or operator."""

    code = "invalid_definition_type"


class DefinitionAttributeError(CarawayError, AttributeError):
    """Arguments of a definition contradict each other; raised at the line of the decorator or method."""

    code = "invalid_definition_attribute"


class InvalidExprException(CarawayError):  # noqa: N818 (the public API's name)
    """An expression is built or used wrongly: as a truth value, with a bad argument, left incomplete."""

    code = "invalid_expression"


class CommitError(CarawayError, ValueError):
    """Definitions that are correct each by itself can't be committed together."""

    code = "invalid_commit"


class CommitTypeError(CarawayError, TypeError):
    """Definitions can't be committed together for a reason that the API reports as a TypeError."""

    code = "invalid_commit_type"


class InvalidInputError(CarawayError, ValueError):
    """A row, a request body or a value doesn't fit what was declared."""

    code = "invalid_input"


class UnknownEntityError(CarawayError, KeyError):
    """A dataset, featureset, feature or endpoint that doesn't exist."""

    code = "unknown_entity"

    def __str__(self) -> str:
        """Return the text unchanged, since KeyError would quote it."""
        return str(self.args[0]) if self.args else ""


class UnknownFeatureError(UnknownEntityError, InvalidInputError):
    """A feature that doesn't exist; also a ValueError, like the error about a feature that no extractor computes."""


class TooLargeError(CarawayError):
    """A request has more bytes, values, rows or levels than one request may have."""

    code = "too_large"


class ConflictError(CarawayError):
    """The request contradicts the state of the deployment."""

    code = "conflict"


class UnauthenticatedError(CarawayError):
    """A request shows no token, or one that isn't valid."""

    code = "unauthenticated"


class ForbiddenError(CarawayError):
    """The caller's roles don't grant what the request needs."""

    code = "forbidden"


class ExtractorError(CarawayError):
    """An extractor raised an error, or returned something else than it declared."""

    code = "extractor_failed"


class RemoteError(CarawayError):
    """The server refused a request; `status` and `remote_code` are its HTTP status and code.

    `retry_after_s` is the time in seconds after which the server wants the request again; None if it doesn't say so.
    """

    code = "remote"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        remote_code: str = "",
        body: object = None,
        retry_after_s: float | None = None,
    ) -> None:
        """Keep the HTTP status, the server's error code, the whole answer and its `Retry-After` beside the text."""
        super().__init__(message)
        self.status = status
        self.remote_code = remote_code
        self.retry_after_s = retry_after_s
        self.body = body


class BusyError(CarawayError):
    """Too many requests are under way, or they take too much; the same request may be sent again in a moment."""

    code = "busy"


class UnavailableError(CarawayError):
    """A part of the deployment doesn't answer at the moment."""

    code = "unavailable"


class OfflineQueryError(CarawayError):
    """An offline query failed, or was cancelled."""

    code = "offline_query"


class NotServedError(CarawayError, TimeoutError):
    """Rows or a commit weren't served within the time that a caller wanted to wait; `lagging` lists what lags."""

    code = "not_served"

    def __init__(self, message: str, *, lagging: tuple[object, ...] = ()) -> None:
        """Keep the list of what lags beside the text."""
        super().__init__(message)
        self.lagging = lagging
