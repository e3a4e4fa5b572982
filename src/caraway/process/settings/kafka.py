"""The settings of Kafka, and the contradictions between them that are refused."""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from caraway.process.settings.oidc import is_safe
from caraway.process.settings.section import FolderPath, Section

# Kafka's JAAS configuration, a line of text, has the user and the password in double quotes. Quotes and backslashes in
# a user or password would change how the line is read, so they are refused, and so are semicolons and white space.
_NO_QUOTES = r'^[^"\\\s;]+$'
_CONTRADICTION = "kafka.security_protocol={protocol} {verb} it: change one of the two"


def _token_url(url: str) -> str:
    if not is_safe(url):
        raise ValueError("must be https://…, since the secret is sent there; http:// only on this machine")
    return url


class KafkaSettings(Section):
    """Kafka, which keeps the events.

    Attributes:
        bootstrap_servers: Brokers as `host:port,host:port`; None starts an embedded broker.
        security_protocol: The protocol of brokers of your own: TLS with `SSL` and `SASL_SSL`, a sign-in with
            `SASL_PLAINTEXT` and `SASL_SSL`. The stack fills this in for its own broker.
        sasl_mechanism: The way to sign in.
        user: The user to sign in as; with `OAUTHBEARER`, the id of the client at the token endpoint.
        password: The password of the user; with `OAUTHBEARER`, the secret of the client.
        token_url: The token endpoint of OAuth 2.0, which gives clients their tokens for `OAUTHBEARER`.
        token_scope: The scope for which clients ask there; None: that which the endpoint gives them by itself.
        ca_file: A file in PEM with the certificate authorities by which brokers are verified; None: those of the
            system.
        certificate_file: A file in PEM with the certificate that clients show to the brokers.
        key_file: A file in PEM (PKCS #8) with the key of that certificate.
        partitions: Partitions of a new dataset topic; 1 is right for one machine.
        replication_factor: The number of brokers that keep each new topic; None: that of the brokers' own settings.
        min_insync_replicas: The number of brokers that must have an event before it is acknowledged; None: that of the
            brokers' own settings.
        heap_mb: Java heap of the embedded broker, in MiB.
    """

    bootstrap_servers: Annotated[str, Field(pattern=r"^[^\s:,]+:\d+(,[^\s:,]+:\d+)*$")] | None = None
    security_protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    # A sign-in needs all of the next three, so their defaults are checked as well.
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        default=None, validate_default=True
    )
    user: Annotated[str, Field(pattern=_NO_QUOTES)] | None = Field(default=None, validate_default=True)
    password: Annotated[str, Field(pattern=_NO_QUOTES)] | None = Field(default=None, validate_default=True, repr=False)
    token_url: Annotated[str, Field(pattern=r'^[^"\\\s;,]+$'), AfterValidator(_token_url)] | None = Field(
        default=None, validate_default=True
    )
    token_scope: Annotated[str, Field(pattern=r'^[^"\\;]+$')] | None = None
    ca_file: FolderPath | None = None
    certificate_file: FolderPath | None = None
    key_file: FolderPath | None = Field(default=None, validate_default=True)
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    replication_factor: Annotated[int, Field(ge=1, le=1_000)] | None = None
    min_insync_replicas: Annotated[int, Field(ge=1, le=1_000)] | None = None
    heap_mb: Annotated[int, Field(ge=128)] = 384

    @field_validator("sasl_mechanism", "user", "password")
    @classmethod
    def _belongs_to_a_sign_in(cls, value: str | None, info: ValidationInfo) -> str | None:
        protocol = info.data.get("security_protocol")
        if protocol is not None and (value is not None) != protocol.startswith("SASL_"):
            verb = "needs" if value is None else "doesn't take"
            raise ValueError(_CONTRADICTION.format(protocol=protocol, verb=verb))
        return value

    @field_validator("token_url", "token_scope")
    @classmethod
    def _belongs_to_tokens(cls, value: str | None, info: ValidationInfo) -> str | None:
        has_tokens = info.data.get("sasl_mechanism") == "OAUTHBEARER"
        if value is not None and not has_tokens:
            raise ValueError("is for kafka.sasl_mechanism=OAUTHBEARER: change one of the two")
        if value is None and has_tokens and info.field_name == "token_url":
            raise ValueError("kafka.sasl_mechanism=OAUTHBEARER needs it: the endpoint that gives the clients tokens")
        return value

    @field_validator("ca_file", "certificate_file", "key_file")
    @classmethod
    def _belongs_to_encryption(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        protocol = info.data.get("security_protocol")
        if value is not None and protocol is not None and not protocol.endswith("SSL"):
            raise ValueError(_CONTRADICTION.format(protocol=protocol, verb="doesn't take"))
        if info.field_name == "key_file" and (value is None) != (info.data.get("certificate_file") is None):
            raise ValueError("it and kafka.certificate_file are set together, or neither is")
        return value

    @field_validator("min_insync_replicas")
    @classmethod
    def _can_be_met(cls, value: int | None, info: ValidationInfo) -> int | None:
        if (value or 0) > (info.data.get("replication_factor") or math.inf):
            raise ValueError("is more than kafka.replication_factor, so no event could be acknowledged")
        return value

    @field_validator("security_protocol", "replication_factor", "min_insync_replicas")
    @classmethod
    def _belongs_to_own_brokers(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        if value not in {None, 1, "PLAINTEXT"} and info.data.get("bootstrap_servers", "") is None:
            raise ValueError("is for brokers of your own, which kafka.bootstrap_servers must name")
        return value
