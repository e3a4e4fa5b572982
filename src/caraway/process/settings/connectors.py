"""The settings of connectors, sources and sinks."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from caraway.process.settings.section import Network, Section, absolute


def _folder(path: str) -> str:
    return str(absolute(Path(path)))


class ConnectorSettings(Section):
    """The networks and rights that sources and sinks, which everybody who may commit can define, have.

    Attributes:
        networks: The networks that they may reach, as `10.0.0.0/8`. Services of clouds that tell a machine's identity,
            and the platform's own services, are never reached.
        loopback: True: they may reach this machine, too, as for a database on a laptop.
        own_services: True: they may use the Kafka and the Postgres of your own that the platform also uses, apart from
            its own topics. Its database has a password of its own.
        own_rights: Addresses, such as `s3://bucket/raw`, `gs://bucket` or `az://account/container`, below which they
            read and write with the server's own identity. For all others a definition needs keys.
        roles: The ARNs of the roles of AWS that the server may assume for them.
        memory_mb: Memory that each may take, in MiB, beyond what its process has with all modules loaded.
    """

    networks: tuple[Network, ...] = ("0.0.0.0/0", "::/0")
    loopback: bool = False
    own_services: bool = False
    own_rights: tuple[Annotated[str, Field(pattern=r"^(s3|gs|az)://")], ...] = ()
    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    memory_mb: Annotated[int, Field(ge=64)] = 2048


class SourcesSettings(Section):
    """Sources, from which servers read rows.

    Attributes:
        endpoints: Addresses of systems, by their names in the definitions, that aren't at the address of their cloud:
            such as one's own MinIO for an `S3`, or an emulator for a `PubSub`.
        local_folders: The folders of the server's machine from which sources may read files. Everybody who may commit
            can read all files in them.
        integer_overlap: How many numbers before the last one are read again in each round of a table whose cursor is a
            number. Databases assign numbers before rows become visible, so a row may appear with a smaller number than
            one that was read; it is missed unless the overlap covers it.
        ca_file: A file in PEM with the certificate authorities by which the Kafka brokers (`SASL_SSL`) of sources and
            sinks, and schema registries, are verified; empty: those of the system.
    """

    endpoints: dict[str, str] = Field(default_factory=dict)
    local_folders: tuple[Annotated[str, AfterValidator(_folder)], ...] = ()
    integer_overlap: Annotated[int, Field(ge=0)] = 0
    ca_file: str = ""


class SinkSettings(Section):
    """Sinks, to which the changes of datasets are written.

    Attributes:
        names: The name of the platform in what sinks write. "fennel" suits consumers that were made for Fennel: the
            position of a change is in `payload.source.fennel`, and the hash of a row in the column `__fennel_hash__`.
    """

    names: Literal["caraway", "fennel"] = "caraway"
