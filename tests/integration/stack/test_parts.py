import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from caraway.apps.stack import ports
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.kafka import EMBEDDED, MECHANISM, USER, EmbeddedKafka
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.dataplane.topics.connection import client_config
from caraway.dataplane.topics.credentials import client_options, java_options, sign_in
from caraway.process.settings.kafka import KafkaSettings
from tests.alone import running
from tests.services.hostile import evil_broker


def test_postgres_fixture_gives_an_empty_database(empty_postgres: str) -> None:
    with psycopg.connect(empty_postgres) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_postgres_wants_its_password(postgres_server: str) -> None:
    head, _, place = postgres_server.rpartition("@")
    wrong = f"{head.rpartition(':')[0]}:wrong@{place}"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_an_impostor_on_the_port_of_postgres_gets_no_password(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", ports.choose())
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", server.port)) as impostor, ThreadPoolExecutor(1) as threads:

        def ask_for_password() -> None:
            caller, _ = impostor.accept()
            with caller:
                caller.settimeout(30)
                got.append(caller.recv(4096))
                # The number of a request for TLS; "N" says that there is none, and the client goes on without.
                if got[-1][4:8] == struct.pack(">i", 80877103):
                    caller.sendall(b"N")
                    got.append(caller.recv(4096))
                # AuthenticationCleartextPassword.
                caller.sendall(b"R" + struct.pack(">ii", 8, 3))
                got.append(caller.recv(4096))

        asking = threads.submit(ask_for_password)
        assert "authentication method requirement" in (server.check(0) or "")
        asking.result(30)
    assert got[0]
    assert (tmp_path / "postgres" / "password").read_bytes() not in b"".join(got)


def test_postgres_keeps_its_data_on_another_port(tmp_path: Path) -> None:
    first = EmbeddedPostgres(tmp_path / "postgres", ports.choose())
    with running(first, tmp_path / "log"), psycopg.connect(first.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    second = EmbeddedPostgres(tmp_path / "postgres", ports.choose())
    with running(second, tmp_path / "log"), psycopg.connect(second.url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


@pytest.mark.full(reason="two brokers of its own; test_supervision starts one again on its data")
def test_kafka_keeps_its_data_on_another_port(tmp_path: Path, jars: JarSet) -> None:
    folder = tmp_path / "kafka"

    def broker() -> EmbeddedKafka:
        port = ports.choose()
        return EmbeddedKafka(
            folder, port=port, controller_port=ports.choose(avoid=[port]), jars=jars.broker, with_password=False
        )

    first = broker()
    with running(first, tmp_path / "log"):
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(timeout=30)
        producer = Producer({"bootstrap.servers": first.bootstrap_servers, "acks": "all"})
        producer.produce("kept", b"seven")
        assert producer.flush(30) == 0
    second = broker()
    with running(second, tmp_path / "log"):
        consumer = Consumer(
            {"bootstrap.servers": second.bootstrap_servers, "group.id": "test", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["kept"])
        message = consumer.poll(30)
        consumer.close()
    assert message is not None
    assert message.value() == b"seven"


def test_kafka_creates_no_topic_by_itself(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.list_topics("not-there", timeout=10)
    assert "not-there" not in admin.list_topics(timeout=10).topics


def test_kafka_requires_its_password_from_clients_of_broker_and_controller(tmp_path: Path, jars: JarSet) -> None:
    port = ports.choose()
    controller_port = ports.choose(avoid=[port])
    broker = EmbeddedKafka(tmp_path / "kafka", port=port, controller_port=controller_port, jars=jars.broker)
    address = broker.bootstrap_servers
    with running(broker, tmp_path / "log"):
        settings = KafkaSettings.model_validate({"bootstrap_servers": address, **EMBEDDED, "password": broker.password})
        assert sign_in(settings) == address
        admin = AdminClient(client_config(address))
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(timeout=30)
        assert "kept" in admin.list_topics(timeout=10).topics
        sign_in(settings.model_copy(update={"password": "guessed"}))
        guessing = client_config(address)
        sign_in(KafkaSettings(bootstrap_servers=address))
        nobody = client_config(address)
        assert "sasl.password" not in nobody
        for config in (guessing, nobody, {**nobody, "bootstrap.servers": f"127.0.0.1:{controller_port}"}):
            with pytest.raises(KafkaException):
                AdminClient(config).list_topics(timeout=3)
    password = broker.password
    assert password is not None
    assert len(password) == 48
    assert password not in (tmp_path / "log").read_text()
    assert password not in repr(settings)
    again = EmbeddedKafka(tmp_path / "kafka", port=port, controller_port=controller_port, jars=jars.broker)
    assert again.password == password
    readable = [path for path in (tmp_path / "kafka").rglob("*") if path.stat().st_mode & 0o077]
    assert readable == []


def test_an_impostor_on_the_port_of_kafka_gets_no_password(tmp_path: Path, jars: JarSet) -> None:
    """The impostor has taken the port while the broker is restarted. It offers PLAIN, and notes what clients send."""
    with evil_broker() as impostor:
        port = int(impostor.address.rpartition(":")[2])
        broker = EmbeddedKafka(tmp_path / "kafka", port=port, controller_port=ports.choose(), jars=jars.broker)
        password = broker.password
        settings = KafkaSettings.model_validate(
            {"bootstrap_servers": broker.bootstrap_servers, **EMBEDDED, "password": password}
        )
        with pytest.raises(KafkaException):
            AdminClient(client_config(sign_in(settings))).list_topics(timeout=3)
    assert USER.encode() in impostor.sent
    assert password is not None
    assert password.encode() not in impostor.sent
    # Java's clients, and the broker itself, take no other mechanism than the one that they are given.
    assert java_options(settings)["sasl.mechanism"] == client_options(settings)["sasl.mechanism"] == MECHANISM
    broker.prepare()
    written = (tmp_path / "kafka" / "server.properties").read_text()
    mechanisms = [line.partition("=")[2] for line in written.splitlines() if "mechanism" in line]
    assert mechanisms == [MECHANISM] * 3
    # The password isn't on the command line by which the files are made, and no copy of it stays beside them.
    assert not (tmp_path / "kafka" / "format.arguments").exists()
