"""HTTP: a server that takes the changes of a dataset by POST."""

from collections.abc import Mapping
from typing import Any, ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, named
from caraway.connectors.settings import Secretish, is_text_dict, stored
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import HTTPConnector as HTTPSpec
from caraway.graph.systems import HTTPSystem
from caraway.integrations.aws import Secret


class Certificate:
    """The PEM text of the CA that signed a server's certificate, or a secret with it."""

    def __init__(self, cert: Secretish) -> None:
        if not isinstance(cert, (str, Secret)) or not cert:  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionError(f"Certificate: cert is PEM text or a Secret, not {type(cert).__name__}")
        self.cert = cert

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and other.cert == self.cert

    def __hash__(self) -> int:
        return hash(self.cert)

    def __repr__(self) -> str:
        return "Certificate(...)"


class HTTP(ExternalSource):
    """A server; `healthz` is the path of its health check."""

    host: Secretish
    healthz: str
    ca_cert: Certificate

    spec_class: ClassVar = HTTPSystem
    required_fields: ClassVar = 'its endpoint: use .path("...")'

    def _stored(self, setting: str) -> Any:
        return stored(self.ca_cert.cert) if setting == "ca_cert" else super()._stored(setting)

    def path(
        self, endpoint: str, limit: int | None = None, headers: Mapping[str, str] | None = None
    ) -> "HTTPConnector":
        """Return the endpoint that takes at most `limit` changes (default 100) a request, with these headers.

        Raises:
            DefinitionError: The endpoint is empty, or the limit isn't positive.
            DefinitionTypeError: An argument is of a wrong type.
        """
        return HTTPConnector(self, endpoint, limit, headers or {})


class HTTPConnector(DataConnector):
    """An endpoint of a server: only for sinks."""

    data_source: HTTP
    readable: ClassVar = False
    writable = True
    sends_changes: ClassVar = True

    def __init__(self, data_source: HTTP, endpoint: str, limit: int | None, headers: Mapping[str, str]) -> None:
        super().__init__(data_source)
        where = f"HTTP {data_source.name}"
        self.endpoint = named(where, "endpoint", endpoint)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise DefinitionTypeError(f"{where}, {endpoint}: limit is an int, not {limit!r}")
        if limit is not None and limit < 1:
            raise DefinitionError(f"{where}, {endpoint}: limit is at least 1, not {limit}")
        if not is_text_dict(headers):
            raise DefinitionTypeError(f"{where}, {endpoint}: headers is a dict of texts, not {headers!r}")
        self.limit = limit
        self.headers = dict(headers)

    def _inside(self) -> str:
        return f"endpoint={self.endpoint}"

    def spec(self) -> HTTPSpec:
        """Return the endpoint as a value."""
        system = self.data_source.stored_system()
        return HTTPSpec(
            system=system, endpoint=self.endpoint, limit=self.limit, headers=tuple(sorted(self.headers.items()))
        )
