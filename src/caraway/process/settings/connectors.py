"""The settings of connectors."""

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, Field

from caraway.process.settings.section import Section


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


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
    """

    networks: tuple[Annotated[str, AfterValidator(_network)], ...] = ("0.0.0.0/0", "::/0")
    loopback: bool = False
    own_services: bool = False
    own_rights: tuple[Annotated[str, Field(pattern=r"^(s3|gs|az)://")], ...] = ()
    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
