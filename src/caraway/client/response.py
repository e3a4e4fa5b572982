"""The answers of a server."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from caraway.client.discovery import LOOPBACK
from caraway.errors import RemoteError, UnavailableError

V1_API = "/api/v1"
BRANCH_HEADER = "X-Caraway-Branch"

# The code of a server's answer for a path that doesn't exist (`caraway.apps.server.http.errors`).
UNKNOWN_PATH = "unknown_path"
NOT_FOUND = 404

# The first HTTP status that means an error.
FIRST_ERROR = 400
# The status with which a server asks a client to send less: nothing of the request was accepted.
TOO_MANY = 429


@dataclass(frozen=True, eq=False)
class Response(Mapping[str, Any]):
    """An answer of a server, with the attributes of a response of the library `requests`.

    As a mapping it has the keys `status_code`, `headers` and `body`.
    """

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body parsed as JSON; an empty object if it isn't JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}

    @property
    def ok(self) -> bool:
        """True if the request succeeded."""
        return self.status_code < FIRST_ERROR

    @property
    def content(self) -> bytes:
        """The body."""
        return self.body

    def __getitem__(self, item: str) -> Any:
        return self._items()[item]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())

    def _items(self) -> dict[str, Any]:
        return {"status_code": self.status_code, "headers": self.headers, "body": self.text}


# Errors that OpenSSL reports, by their names, and the remedies.
TLS_REMEDIES: Final = {
    "CERTIFICATE_VERIFY_FAILED": "it shows a certificate that isn't trusted for this name. Name the file with its "
    "authority in the variable SSL_CERT_FILE, and use a URL with a name for which the certificate is",
    "WRONG_VERSION_NUMBER": "it speaks no TLS; its URL begins with http://",
}


def refusal(response: Response, request: str, remark: str = "") -> RemoteError:
    """Return the error for an answer that refuses a request, such as `POST /log`; a remark follows the reason."""
    body = response.json()
    members = body if isinstance(body, dict) else {}
    code = str(members.get("code", ""))
    text = members.get("err_msg") or f"status {response.status_code}: {response.text or 'no explanation'}"
    if response.status_code == NOT_FOUND and code == UNKNOWN_PATH:
        text = f"{text}; this server has no {request}, it may be of another version than this client"
    text = f"{text}; {remark}" if remark else text
    difference = f"\n{members['err_diff']}" if members.get("err_diff") else ""
    return RemoteError(
        f"{text}{difference}",
        status=response.status_code,
        remote_code=code,
        body=body,
        retry_after_s=retry_after(response.headers.get("retry-after")),
    )


def retry_after(header: str | None) -> float | None:
    """Return the seconds in a header `Retry-After`; None without one, or if it has a date."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def no_answer(url: str, error: Exception) -> UnavailableError:
    """Return the error for a server that doesn't answer, or whose certificate isn't trusted."""
    if (remedy := next((remedy for sign, remedy in TLS_REMEDIES.items() if sign in str(error)), None)) is not None:
        return UnavailableError(f"the Caraway server at {url} isn't asked ({error}): {remedy}")
    remedy = (
        "is it running? `caraway up` starts a stack on this machine, and prints its URL"
        if urlsplit(url).hostname in LOOPBACK
        else "check the URL, and that the server runs there and can be reached from this machine"
    )
    return UnavailableError(f"no answer from the Caraway server at {url} ({_reason(error)}); {remedy}")


def _reason(error: Exception) -> str:
    """Return why a connection failed, without the names of Python's classes and the numbers of the system's errors."""
    # `urllib.error.URLError` has the error of the system in it.
    text = str(getattr(error, "reason", error))
    return re.sub(r"^\[Errno -?\d+\] ", "", text).rstrip(".") or "the connection ended"
