"""Redis: keys with the rows of a dataset, to which only sinks write. The API that Caraway follows has no such class."""

from typing import Any, ClassVar

from caraway.connectors.data_connector import DataConnector
from caraway.connectors.data_source import ExternalSource, duration_us, named
from caraway.connectors.settings import Secretish, one_of
from caraway.errors import DefinitionError
from caraway.graph.connectors import RedisConnector as RedisSpec
from caraway.graph.systems import RedisSystem

FORMATS = ("hash", "json")
# Sinks store their positions under keys that begin with this text (`caraway.dataplane.sinks.redis.rows`), so keys of
# rows must not begin with it.
POSITION = "caraway:"
# Redis counts the time to live in milliseconds, so none can be shorter.
SHORTEST_TTL_US = 1_000


class Redis(ExternalSource):
    """A Redis server, or one that speaks its protocol; not a Redis Cluster.

    Attributes:
        host: The address of the server.
        port: Its port.
        db: The number of the database.
        username: The user, as `ACL SETUSER` has made it; by default that of Redis.
        password: The password.
        tls: True if the connection is encrypted. The certificate must be that of `host`, signed by an authority that
            the server trusts (`sources.ca_file`).
    """

    host: Secretish
    port: int = 6379
    db: int = 0
    username: Secretish | None = None
    password: Secretish | None = None
    tls: bool = False

    spec_class: ClassVar = RedisSystem
    renamed: ClassVar = {"database": "db", "transport": "tls"}
    required_fields: ClassVar = 'its keys: use .keys("...")'

    def _check(self) -> None:
        if self.username is not None and self.password is None:
            raise DefinitionError(f"Redis {self.name}: a username needs a password")

    def _stored(self, setting: str) -> Any:
        if setting == "tls":
            return "tls" if self.tls else "plain"
        return super()._stored(setting)

    def keys(self, prefix: str, format: str = "hash", ttl: str | None = None) -> "RedisConnector":
        """Return the keys that begin with a prefix, one for each row of a dataset.

        Args:
            prefix: The begin of the keys. The branch and the version of the dataset come behind it, and a colon.
            format: "hash" for a hash with a field for each column, "json" for a text with a JSON object.
            ttl: How long a key lives after it was written, a duration; for ever by default.

        Raises:
            DefinitionError: The prefix is empty or begins with `caraway:`, the format is unknown, or ttl no duration.
            DefinitionTypeError: The prefix is no text.
        """
        return RedisConnector(self, prefix, format, ttl)


class RedisConnector(DataConnector):
    """Keys of a Redis: only for sinks."""

    data_source: Redis
    readable: ClassVar = False
    writable = True

    def __init__(self, data_source: Redis, prefix: str, format: str, ttl: str | None) -> None:
        super().__init__(data_source)
        where = f"Redis {data_source.name}"
        self.prefix = named(where, "prefix", prefix)
        if prefix.startswith(POSITION):
            raise DefinitionError(
                f"{where}: a prefix can't begin with {POSITION}, as the positions of sinks do: {prefix!r}"
            )
        one_of(f"{where}, {prefix}: format", format, FORMATS)
        self.format = format
        self.ttl_us = None if ttl is None else duration_us(f"{where}, {prefix}", "ttl", ttl)
        if self.ttl_us is not None and self.ttl_us < SHORTEST_TTL_US:
            raise DefinitionError(f"{where}, {prefix}: ttl is at least a millisecond, not {ttl!r}")

    def _inside(self) -> str:
        return f"prefix={self.prefix}"

    def spec(self) -> RedisSpec:
        """Return the keys as a value."""
        return RedisSpec(
            system=self.data_source.stored_system(), prefix=self.prefix, format=self.format, ttl_us=self.ttl_us
        )
