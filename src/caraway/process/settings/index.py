"""The settings of the index."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from caraway.process.settings.section import FolderPath, Port, Section


class IndexSettings(Section):
    """The index, from which queries read.

    Attributes:
        shards: Number of parts into which the index is divided among the servers; None: each server has all of it. All
            servers of a deployment need the same number, and `kafka.partitions` should be a multiple of it.
        host: Address on which this server serves its shards to others; the default is reachable from this machine only.
        port: The port on which this server serves its shards; 0 chooses a free one.
        address: `host:port` at which other servers reach this one; None: `host` and `port` are that address.
        ca_file: A file in PEM with the authority of all servers' certificates; with it and the two below
            servers read each other's shards by TLS, each with a certificate of that authority.
        certificate_file: A file in PEM with this server's certificate, for the host of `address`.
        key_file: A file in PEM with the key of that certificate, without a passphrase.
        lease_seconds: A server that gives no sign of life for this time loses its shards to others. A server that can't
            reach Postgres goes on answering from its shards for the same time.
        load_records: An index that lacks more records than this, and at least half of those of its topic, is built as
            files by the processes of offline queries, and loaded. 0: indexes always read their topics.
    """

    shards: Annotated[int, Field(ge=1, le=1_000)] | None = None
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Port = 0
    address: Annotated[str, Field(pattern=r"^\S+:\d+$")] | None = None
    ca_file: FolderPath | None = None
    certificate_file: FolderPath | None = None
    key_file: FolderPath | None = Field(default=None, validate_default=True)
    lease_seconds: Annotated[float, Field(ge=1)] = 10.0
    load_records: Annotated[int, Field(ge=0)] = 5_000_000

    @field_validator("key_file")
    @classmethod
    def _belongs_to_a_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if len({value is None, info.data.get("certificate_file") is None, info.data.get("ca_file") is None}) > 1:
            raise ValueError("it, index.certificate_file and index.ca_file are set together, or none is")
        return value
