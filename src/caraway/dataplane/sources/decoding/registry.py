"""The client of a schema registry with Confluent's interface, which other registries have too.

It reads schemas by their ids. The schema of an id never changes, so each id is asked for once.
"""

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2
import orjson

from caraway.errors import InvalidInputError, UnavailableError, shortened
from caraway.graph.systems import SchemaRegistry, Secretish

Resolve = Callable[[Secretish], str]

# The seconds for which the registry's answer is awaited.
ANSWER_TIMEOUT_S = 10.0
# The most bytes of an answer. Real schemas have some kB, generated ones up to some 100 kB.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
# The most schemas that one schema may import, directly and through others.
MAX_REFERENCES = 500
# The registry's codes in the body of an answer 404: no such subject, version or schema. A 404 without such a code isn't
# from a registry. Then the URL is wrong, and no record is at fault.
NOT_FOUND = frozenset({40401, 40402, 40403})
# The HTTP statuses of errors that may pass: 429 for too many requests, and 500 or more for failures of the registry
# itself.
TOO_MANY, FIRST_FAILURE = 429, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        id: Its number.
        kind: "AVRO", "PROTOBUF" or "JSON".
        text: Its text.
        imports: The names and texts of the schemas that it imports, each behind those that it imports itself.
    """

    id: int
    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()


class Registry:
    """Reads schemas. It is used by one thread."""

    def __init__(
        self,
        settings: SchemaRegistry,
        resolve: Resolve,
        *,
        ca_file: str = "",
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """Prepare to read; nothing is asked for yet.

        Args:
            settings: The address and the credentials.
            resolve: Returns the values of secrets. It is called for each request, so that a changed one takes effect.
            ca_file: A file in PEM with the certificate authorities of the registry; empty for those of the system.
            transport: Sends requests in the place of the network.

        Raises:
            UnavailableError: `ca_file` can't be read.
        """
        self._settings = settings
        self._resolve = resolve
        self.where = f"the schema registry at {_without_login(settings.url)}"
        try:
            verify = ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise UnavailableError(
                f"the certificate authorities in {ca_file} can't be read ({error}); check the setting sources.ca_file"
            ) from error
        self._client = httpx2.Client(
            base_url=settings.url.rstrip("/") + "/",
            timeout=ANSWER_TIMEOUT_S,
            # A redirect could send the credentials to another host.
            follow_redirects=False,
            # A proxy of the server's environment would connect in place of this process, whose addresses are checked.
            trust_env=False,
            verify=verify,
            transport=transport,
        )

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def read(self, schema_id: int) -> RegisteredSchema:
        """Return a schema with all that it imports.

        Raises:
            InvalidInputError: The registry has no such schema, or what it has can't be read. The message is a
                predicate: the caller puts words for the record before it.
            UnavailableError: The registry doesn't answer, or refuses.
        """
        what = f"has the schema {schema_id}"
        found = self._get(f"schemas/ids/{schema_id}", what)
        imports: dict[str, str] = {}
        self._collect(found, imports, what, [])
        return RegisteredSchema(
            id=schema_id,
            # Registries leave the type out if it is Avro, which was the only one once.
            kind=str(found.get("schemaType") or "AVRO"),
            text=_text(found, what),
            imports=tuple(imports.items()),
        )

    def _collect(self, found: Mapping[str, Any], imports: dict[str, str], what: str, path: Sequence[str]) -> None:
        """Add the imported schemas of an answer, each behind its own."""
        for name, subject, version in _references(found, what):
            if name in imports:
                continue
            if name in path:
                raise InvalidInputError(f"{what}, which imports {shortened(name)} in a circle")
            if len(imports) + len(path) >= MAX_REFERENCES:
                raise InvalidInputError(f"{what}, which imports more than {MAX_REFERENCES} others")
            inner = self._get(f"subjects/{quote(subject, safe='')}/versions/{version}", what)
            self._collect(inner, imports, what, [*path, name])
            imports[name] = _text(inner, what)

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        status, body = self._ask(path)
        if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            # The secret may have changed between its look-up and the request, so it is looked up once more.
            status, body = self._ask(path)
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        match status, answer:
            case httpx2.codes.OK, dict():
                return answer
            case httpx2.codes.NOT_FOUND, {"error_code": int(code)} if code in NOT_FOUND:
                raise InvalidInputError(f"{what}, and {self.where} has no {path}")
            case ((httpx2.codes.UNAUTHORIZED | httpx2.codes.FORBIDDEN), _):
                raise UnavailableError(f"{self.where} answered HTTP {status} to GET {path}: {self._remedy}")
            case _:
                passes = status == TOO_MANY or status >= FIRST_FAILURE
                hint = "it is asked again" if passes else "check the url; it is that of Confluent's interface"
                raise UnavailableError(f"{self.where} answered HTTP {status} to GET {path}; {hint}")

    def _ask(self, path: str) -> tuple[int, bytes]:
        try:
            with self._client.stream("GET", path, headers=self._headers()) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        raise InvalidInputError(
                            f"has a schema whose text is longer than {MAX_ANSWER_BYTES:,} bytes ({path})"
                        )
                return response.status_code, bytes(body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnavailableError(f"{self.where} doesn't answer: {type(error).__name__} {error}") from None

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        settings = self._settings
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {self._resolve(settings.token)}"
        elif settings.username is not None and settings.password is not None:
            login = f"{self._resolve(settings.username)}:{self._resolve(settings.password)}"
            headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        return headers

    @property
    def _remedy(self) -> str:
        kind = self._settings.format.capitalize()
        if self._settings.token is not None:
            return f"check the token of {kind}(...), and what it may read"
        if self._settings.username is not None:
            return f"check username and password of {kind}(...), and what this user may read"
        return f"it asks for credentials; give {kind}(...) username and password, or a token"


def _without_login(url: str) -> str:
    """Return a URL for a message, without a user's name and password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _text(found: Mapping[str, Any], what: str) -> str:
    text = found.get("schema")
    if not isinstance(text, str):
        raise InvalidInputError(f"{what}, for which the registry returned no text")
    return text


def _references(found: Mapping[str, Any], what: str) -> Iterator[tuple[str, str, int]]:
    for reference in found.get("references") or ():
        match reference:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                yield name, subject, version
            case _:
                raise InvalidInputError(f"{what}, whose references can't be read")
