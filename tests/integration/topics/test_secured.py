"""Tests of the platform's own clients at brokers of somebody else's: TLS, sign-in, certificates, and refusals."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import ConfigResource
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.java import jvm_of
from caraway.dataplane.topics.admin import ALONE, BrokerAdmin, check_access, ensure_topics
from caraway.dataplane.topics.credentials import java_properties, sign_in, spark_options
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.positions import TopicEnds
from caraway.dataplane.topics.producer import TopicWriter
from caraway.errors import UnavailableError
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.kafka import KafkaSettings
from tests.integration.server.server_process import records
from tests.services.certificates import write_certificates
from tests.services.oidc import CLIENT, SCOPE, SECRET
from tests.services.secured_kafka import PASSWORD, TOKENS, USER, SecuredKafka

GUESSED, OTHER_CA, OTHER = "guessed-password", "other-ca.pem", "other.pem"


def settings(secured: SecuredKafka, protocol: str, *, at: str | None = None, **changes: object) -> KafkaSettings:
    """Return the settings of clients that the broker accepts, with some changes; `at` is the port's own protocol."""
    good: dict[str, object] = {"bootstrap_servers": secured.addresses[at or protocol], "security_protocol": protocol}
    if protocol == TOKENS:
        good |= {"security_protocol": "SASL_SSL", "sasl_mechanism": TOKENS, "user": CLIENT, "password": SECRET}
        good |= {"token_url": f"{secured.provider.issuer}/machines", "token_scope": SCOPE, "ca_file": secured.ca_file}
    if protocol.startswith("SASL"):
        good |= {"sasl_mechanism": "SCRAM-SHA-512", "user": USER, "password": PASSWORD}
    if protocol.endswith("SSL"):
        good |= {"ca_file": secured.ca_file}
    if protocol == "SSL":
        good |= {"certificate_file": secured.client_file, "key_file": secured.client_file}
    return KafkaSettings.model_validate(good | changes)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", TOKENS])
def test_writer_reader_administrator_and_spark_connect(
    secured: SecuredKafka, spark: SparkSession, protocol: str
) -> None:
    given = settings(secured, protocol, replication_factor=1, min_insync_replicas=1)
    servers = sign_in(given)
    check_access(servers)
    for option in java_properties(given):
        # The engine gives them to the JVM at its start, and that of the tests runs already.
        jvm_of(spark).java.lang.System.setProperty(*option.removeprefix("-D").split("=", 1))
    source, copy = (f"{name}-{secrets.token_hex(4)}" for name in ("source", "copy"))
    ensure_topics(servers, [source, copy], 1)
    with TopicWriter(servers) as writer:
        writer.write(source, [(b"k", b"v%d" % number, None) for number in range(3)]).result(30)
    assert TopicEnds(servers).ends([source]) == {source: {0: 3}}
    # Each task has clients of its own: the source reads here, and the sink writes.
    read = spark.read.format("kafka").options(**spark_options(servers)).option("subscribe", source).load()
    read.select("key", "value").write.format("kafka").options(**spark_options(servers)).option("topic", copy).save()
    assert records(servers, copy) == [b"v0", b"v1", b"v2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Settings that the broker refuses.

    Attributes:
        protocol: The security protocol of the settings.
        at: The protocol of the port, if it is another one.
        changes: The settings that are wrong.
        named: The setting that the error names.
    """

    protocol: str
    at: str | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    named: str


WRONG = {
    "password of SCRAM": Wrong(protocol="SASL_SSL", changes={"password": GUESSED}, named="kafka.password"),
    "password of PLAIN": Wrong(
        protocol="SASL_PLAINTEXT", changes={"sasl_mechanism": "PLAIN", "password": GUESSED}, named="kafka.password"
    ),
    "secret of OAUTHBEARER": Wrong(protocol=TOKENS, changes={"password": GUESSED}, named="kafka.token_url"),
    "scope of OAUTHBEARER": Wrong(protocol=TOKENS, changes={"token_scope": "else"}, named="kafka.token_scope"),
    "a token for a port of passwords": Wrong(protocol=TOKENS, at="SASL_SSL", named="kafka.sasl_mechanism"),
    "another authority": Wrong(protocol="SASL_SSL", changes={"ca_file": OTHER_CA}, named="kafka.ca_file"),
    "the system's authorities": Wrong(protocol="SASL_SSL", changes={"ca_file": None}, named="kafka.ca_file"),
    "TLS to a plain port": Wrong(protocol="SASL_SSL", at="PLAINTEXT", named="kafka.security_protocol"),
    "a password that nobody wants": Wrong(protocol="SASL_PLAINTEXT", at="PLAINTEXT", named="kafka.security_protocol"),
    "no certificate": Wrong(
        protocol="SSL", changes={"certificate_file": None, "key_file": None}, named="kafka.certificate_file"
    ),
    "a certificate of another authority": Wrong(
        protocol="SSL", changes={"certificate_file": OTHER, "key_file": OTHER}, named="kafka.certificate_file"
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_refusal_at_the_start_names_the_setting(
    secured: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Wrong
) -> None:
    monkeypatch.chdir(tmp_path)
    write_certificates(Path(OTHER_CA), Path(OTHER))
    servers = sign_in(settings(secured, wrong.protocol, at=wrong.at, **wrong.changes))
    with pytest.raises(ConfigurationError, match=re.escape(wrong.named)) as caught:
        check_access(servers)
    assert servers in str(caught.value)
    assert GUESSED not in str(caught.value)


def test_a_port_with_tls_is_named_to_a_client_without(secured: SecuredKafka) -> None:
    servers = sign_in(settings(secured, "PLAINTEXT", at="SASL_SSL"))
    # A broker that starts may close connections too, so the start goes on, and the check goes on to tell it.
    check_access(servers)
    with pytest.raises(UnavailableError, match=r"kafka\.security_protocol"):
        BrokerAdmin(servers).cluster(0.5)


def test_brokers_decide_how_many_replicas_there_are(secured: SecuredKafka) -> None:
    """The broker refuses more replicas than there are brokers, so a number that is accepted was its own."""
    servers = sign_in(settings(secured, "PLAINTEXT"))
    name, strict = f"own-{secrets.token_hex(4)}", f"strict-{secrets.token_hex(4)}"
    ensure_topics(servers, [name, DEAD_LETTERS], 1)
    admin = BrokerAdmin(servers)
    assert admin.problem() is None
    assert admin.warning == ALONE
    # The address that the settings name is one of those that the broker has told.
    assert {f"{host}:{port}" for host, port in admin.brokers} >= {servers.partition("@")[2] or servers}
    sign_in(settings(secured, "PLAINTEXT", replication_factor=1, min_insync_replicas=1))
    assert admin.problem() is None
    assert admin.warning == ""
    ensure_topics(servers, [strict], 1)
    resource = ConfigResource(ConfigResource.Type.TOPIC, strict)
    (config,) = admin.client.describe_configs([resource]).values()
    assert config.result(30)["min.insync.replicas"].value == "1"
    sign_in(settings(secured, "PLAINTEXT", replication_factor=3))
    with pytest.raises(UnavailableError, match=r"(?i)replication factor"):
        ensure_topics(servers, [f"three-{secrets.token_hex(4)}"], 1)
