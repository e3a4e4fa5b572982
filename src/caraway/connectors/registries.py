"""Encodings whose schemas are in a registry: Avro and Protobuf."""

from typing import ClassVar

from caraway.connectors.settings import Secretish, Settings, stored
from caraway.errors import CommitError, DefinitionError
from caraway.graph.systems import RegistryFormat, SchemaRegistry

REGISTRIES = ("confluent",)


class _InRegistry(Settings):
    registry: str
    url: str
    username: Secretish | None = None
    password: Secretish | None = None
    token: Secretish | None = None

    _format: ClassVar[RegistryFormat]
    _needs_login: ClassVar[bool]

    def _check(self) -> None:
        kind = type(self).__name__
        if (self.username is None) != (self.password is None):
            there, missing = ("username", "password") if self.password is None else ("password", "username")
            raise DefinitionError(f"{kind} {self.url}: {there} is given without {missing}")
        if self.username is not None and self.token is not None:
            raise DefinitionError(f"{kind} {self.url}: give username and password, or token, not both")
        if self._needs_login and self.username is None and self.token is None:
            raise DefinitionError(f"{kind} {self.url}: username and password, or token, are missing")

    def spec(self) -> SchemaRegistry:
        """Return the encoding as a value.

        Raises:
            CommitError: The kind of the registry is unknown.
        """
        if self.registry not in REGISTRIES:
            raise CommitError(
                f"{type(self).__name__} {self.url}: the registry is {', '.join(REGISTRIES)}, not {self.registry!r}"
            )
        return SchemaRegistry(
            format=self._format,
            registry=self.registry,
            url=self.url,
            username=stored(self.username),
            password=stored(self.password),
            token=stored(self.token),
        )


class Avro(_InRegistry):
    """Records in Avro; the registry may be open, or take username and password, or a token."""

    _format: ClassVar = RegistryFormat.AVRO
    _needs_login: ClassVar = False


class Protobuf(_InRegistry):
    """Records in Protobuf; the registry takes username and password, or a token."""

    _format: ClassVar = RegistryFormat.PROTOBUF
    _needs_login: ClassVar = True
