"""Tests of the settings of Kafka: those that contradict each other are refused, by the names of the settings."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from caraway.dataplane.topics.credentials import client_options, java_options, java_properties, sign_in
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import Settings, load_settings
from tests.services.certificates import write_certificates

OWN = {"bootstrap_servers": "kafka:9093"}
SIGN_IN = {"sasl_mechanism": "SCRAM-SHA-512", "user": "ada", "password": "pass-word"}
TOKENS = {**SIGN_IN, "sasl_mechanism": "OAUTHBEARER", "token_url": "https://login.example.com/token"}
FILES = {"certificate_file": "client.pem", "key_file": "client.pem"}


def loaded(folder: Path, settings: dict[str, str | int]) -> Settings:
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    (folder / "caraway.toml").write_text("\n".join(["[kafka]", *lines]))
    return load_settings(folder)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({**OWN, "security_protocol": "TLS"}, "security_protocol"),
        ({**OWN, "security_protocol": "SASL_SSL", **SIGN_IN, "sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
        *(
            ({**OWN, "security_protocol": protocol, **SIGN_IN}, name)
            for protocol in ("PLAINTEXT", "SSL")
            for name in SIGN_IN
        ),
        *(
            ({**OWN, "security_protocol": "SASL_SSL", **{k: v for k, v in SIGN_IN.items() if k != n}}, n)
            for n in SIGN_IN
        ),
        ({**OWN, "security_protocol": "SASL_SSL", **TOKENS, "sasl_mechanism": "PLAIN"}, "token_url"),
        ({**OWN, "security_protocol": "SASL_SSL", **SIGN_IN, "sasl_mechanism": "OAUTHBEARER"}, "token_url"),
        ({**OWN, "security_protocol": "SASL_SSL", **TOKENS, "token_url": "http://login.example.com/"}, "token_url"),
        ({**OWN, "security_protocol": "SASL_SSL", **TOKENS, "token_url": "https://a/,https://b/"}, "token_url"),
        ({**OWN, "security_protocol": "SASL_SSL", **SIGN_IN, "token_scope": "topics"}, "token_scope"),
        ({**OWN, "ca_file": "ca.pem"}, "ca_file"),
        ({**OWN, **FILES}, "certificate_file"),
        ({**OWN, "security_protocol": "SASL_PLAINTEXT", **SIGN_IN, **FILES}, "certificate_file"),
        ({**OWN, "security_protocol": "SSL", "certificate_file": "client.pem"}, "key_file"),
        ({**OWN, "security_protocol": "SSL", "key_file": "client.pem"}, "key_file"),
        ({"security_protocol": "SASL_SSL", **SIGN_IN}, "security_protocol"),
        ({"replication_factor": 3}, "replication_factor"),
        ({"min_insync_replicas": 2}, "min_insync_replicas"),
        ({**OWN, "replication_factor": 2, "min_insync_replicas": 3}, "min_insync_replicas"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, settings: dict[str, str | int], wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(?m)caraway\.toml:\d+: kafka\.{wrong}: ") as caught:
        loaded(tmp_path, settings)
    assert "pass-word" not in str(caught.value)


def test_each_protocol_has_its_settings_of_both_clients(tmp_path: Path) -> None:
    ca, pem = tmp_path / "ca.pem", tmp_path / "client.pem"
    write_certificates(ca, pem)
    files: dict[str, str | int] = {"ca_file": str(ca), "certificate_file": str(pem), "key_file": str(pem)}
    ways: dict[str, dict[str, str | int]] = {
        "PLAINTEXT": {},
        "SSL": files,
        "SASL_PLAINTEXT": dict(SIGN_IN),
        "SASL_SSL": {**SIGN_IN, **files},
    }
    for protocol, settings in ways.items():
        kafka = loaded(tmp_path, {**OWN, "security_protocol": protocol, **settings}).kafka
        python, java = client_options(kafka), java_options(kafka)
        assert python["security.protocol"] == java["security.protocol"] == protocol
        for options in (python, java):
            families = {name.partition(".")[0] for name in options} - {"security"}
            assert families == {"sasl", "ssl"} & set(protocol.lower().split("_"))
        if "SASL" in protocol:
            assert java["sasl.jaas.config"] == (
                'org.apache.kafka.common.security.scram.ScramLoginModule required username="ada" password="pass-word";'
            )
            assert (python["sasl.username"], python["sasl.password"]) == ("ada", "pass-word")
        if protocol.endswith("SSL"):
            assert java["ssl.truststore.certificates"] == ca.read_text()
            assert python["ssl.key.location"] == str(pem)


def test_clients_of_tokens_send_their_secret_to_the_endpoint_alone(tmp_path: Path) -> None:
    kafka = loaded(tmp_path, {**OWN, "security_protocol": "SASL_SSL", **TOKENS, "token_scope": "topics"}).kafka
    python, java, url = client_options(kafka), java_options(kafka), "https://login.example.com/token"
    assert python["sasl.oauthbearer.method"] == "oidc"
    assert python["sasl.oauthbearer.token.endpoint.url"] == java["sasl.oauthbearer.token.endpoint.url"] == url
    assert not {"sasl.username", "sasl.password"} & python.keys()
    login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    assert java["sasl.jaas.config"] == (f'{login} required clientId="ada" clientSecret="pass-word" scope="topics";')
    assert java_properties(kafka) == [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"]
    assert java_properties(loaded(tmp_path, {**OWN, "security_protocol": "SASL_SSL", **SIGN_IN}).kafka) == []


def test_a_file_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    ca, pem, other = tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "other.pem"
    write_certificates(ca, pem)
    write_certificates(other, tmp_path / "others.pem")
    empty, older, missing = tmp_path / "empty.pem", tmp_path / "older.pem", tmp_path / "missing.pem"
    empty.write_text("no certificate")
    key = load_pem_private_key(pem.read_bytes(), None)
    older.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    good: dict[str, str | int] = {"ca_file": str(ca), "certificate_file": str(pem), "key_file": str(pem)}
    for setting, file, said in [
        ("ca_file", empty, "kafka.ca_file: "),
        ("ca_file", missing, "kafka.ca_file: "),
        ("certificate_file", other, "kafka.certificate_file and kafka.key_file: "),  # It isn't of this key.
        ("key_file", missing, "kafka.certificate_file and kafka.key_file: "),
        ("key_file", older, "kafka.key_file: "),
    ]:
        kafka = loaded(tmp_path, {**OWN, "security_protocol": "SSL", **good, setting: str(file)}).kafka
        with pytest.raises(ConfigurationError, match=f"^{said}.*{file.name}"):
            sign_in(kafka)
    assert sign_in(loaded(tmp_path, {**OWN, "security_protocol": "SSL", **good}).kafka) == OWN["bootstrap_servers"]
