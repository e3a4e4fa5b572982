"""The embedded Kafka: one KRaft broker from the locked jars."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from caraway.apps.stack.errors import PartFailedError
from caraway.apps.stack.probe import check_kafka
from caraway.dataplane.streams.java.class_archives import ClassArchive
from caraway.dataplane.streams.java.runtime import find_java
from caraway.dataplane.topics.credentials import login
from caraway.process.children.part import Launch, Part
from caraway.process.children.process import run_to_end
from caraway.process.private_files import kept_password, make_folder, opener, write_whole

FORMAT_SECONDS = 120.0
USER = "caraway"
# With SCRAM each side only proves that it knows the password. So a program that takes the port while the broker is
# restarted, and passes for the broker, doesn't get the password.
MECHANISM = "SCRAM-SHA-256"
# The settings of the broker's clients, beside the address and the password. The replication factor is 1, since there is
# no other broker.
EMBEDDED = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": MECHANISM, "user": USER, "replication_factor": 1}
# A password of 192 random bits can't be guessed, though every user of the machine reaches the port and may try without
# limit.
PASSWORD_BYTES = 24
LOG4J = Path(__file__).with_name("kafka-log4j2.properties")

# A record is acknowledged once it is in the system's page cache. So it survives the death of the broker and of other
# processes, but not a power failure. To survive that, each batch would need an fsync, since no other machine has a
# copy.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENT",
    "auto.create.topics.enable": "false",
    # A single broker has no other one to replicate to.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # By default Kafka delays the first rebalance of a consumer group by 3 s, to wait for more members. The consumers of
    # Caraway join no group, and the delay would only make each start of a user's program slower.
    "group.initial.rebalance.delay.ms": "0",
    # By default Kafka forgets the offsets of a consumer group after 7 days. Caraway's consumers don't need them, but a
    # user's program may pause for longer.
    "offsets.retention.minutes": str(60 * 24 * 365),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "background.threads": "2",
    # When the broker starts, the log cleaner allocates this buffer in the broker's heap, and that heap has 384 MiB by
    # default. Kafka's default for the buffer is 128 MiB, a third of the heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    # With these two values, files whose records were removed from a topic, such as erased ones, are deleted within half
    # a minute. By default Kafka looks for such files every five minutes, and deletes them a minute after that.
    "log.retention.check.interval.ms": "20000",
    "log.segment.delete.delay.ms": "10000",
    # After the broker is killed, Kafka's controller refuses to register it again until the session of the killed broker
    # has expired, by default after 9 s. So the session is short here, and heartbeats renew it more often.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def kafka_classes(cache_dir: Path, jars: Sequence[Path]) -> ClassArchive:
    """Return the archive of the classes of a broker with these jars."""
    return ClassArchive.of(cache_dir, "kafka", jars)


def new_cluster_id() -> str:
    """Return a random id of a cluster: 128 bits, as 22 characters of base64."""
    # The first character is a digit or a letter: Kafka's tool would take an id that begins with "-" for an option.
    return secrets.token_hex(1)[0] + secrets.token_urlsafe(16)[1:22]


class EmbeddedKafka(Part):
    """A Kafka broker that lives in a folder.

    Attributes:
        port: The port at which clients reach the broker.
    """

    name = "kafka"
    stop_seconds = 20.0
    start_seconds = 90.0

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        controller_port: int,
        jars: Sequence[Path],
        heap_mb: int = 384,
        java_options: Sequence[str] = (),
        with_password: bool = True,
    ) -> None:
        """Prepare a broker.

        Args:
            folder: The folder of its files.
            port: The port for clients, on this machine.
            controller_port: The port for the broker's own controller.
            jars: Its class path.
            heap_mb: Its heap, in MiB.
            java_options: More options of its JVM.
            with_password: True: clients and the controller must show the password; only tests do without.
        """
        self._with_password = with_password
        self.port = port
        self._controller_port = controller_port
        self._folder = folder
        self._class_path = os.pathsep.join(map(str, jars))
        self._heap_mb = heap_mb
        self._java_options = java_options

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker, in the form that clients take."""
        return f"127.0.0.1:{self.port}"

    @override
    def prepare(self) -> None:
        """Write the broker's configuration and, the first time, its identity."""
        make_folder(self._folder)
        listeners = f"CLIENT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}"
        properties = {
            **PROPERTIES,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"CLIENT://127.0.0.1:{self.port}",
            **self._security(),
            # Java reads a properties file as Latin-1, and takes a backslash for the begin of an escape. The escapes for
            # all other characters are those of JSON.
            "log.dirs": json.dumps(str(self._data))[1:-1],
        }
        with open(self._properties, "w", encoding="utf-8", opener=opener) as file:
            file.writelines(f"{name}={value}\n" for name, value in properties.items())
        if not (self._data / "meta.properties").is_file():
            self._format()

    @override
    def launch(self) -> Launch:
        """Return the command that runs the broker."""
        # When the broker pauses to collect garbage, all events wait. A collection copies the objects that survive,
        # which are few however rare collections are. So collections are made rare: half of the heap is for new objects.
        # The collector G1 collected every second, and marked all the time (decision 29).
        heap = (f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m", f"-Xmn{self._heap_mb // 2}m", "-XX:+UseSerialGC")
        return Launch(
            command=(
                *self._java(),
                *self._java_options,
                *heap,
                "-XX:+ExitOnOutOfMemoryError",
                "-Djava.awt.headless=true",
                f"-Dlog4j2.configurationFile={LOG4J}",
                "kafka.Kafka",
                str(self._properties),
            ),
            folder=self._folder,
        )

    @override
    def check(self, pid: int) -> str | None:
        """Return why the broker doesn't answer, or None if it does."""
        return check_kafka(self.bootstrap_servers)

    @property
    def password(self) -> str | None:
        """The password of `USER`; None if the broker asks for none."""
        return kept_password(self._folder / "password", PASSWORD_BYTES) if self._with_password else None

    def _security(self) -> dict[str, str]:
        password = self.password
        if password is None:
            return {"listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
        jaas = login(USER, password, MECHANISM)
        return {
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.mechanism.controller.protocol": MECHANISM,
            f"listener.name.client.{MECHANISM.lower()}.sasl.jaas.config": jaas,
            f"listener.name.controller.{MECHANISM.lower()}.sasl.jaas.config": jaas,
        }

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _java(self) -> tuple[str, ...]:
        return (str(find_java()), "-cp", self._class_path)

    def _cluster_id(self) -> str:
        return new_cluster_id()

    def _format(self) -> None:
        options = ["kafka.tools.StorageTool", "format", "-t", self._cluster_id(), "-c", str(self._properties)]
        arguments = self._folder / "format.arguments"
        if (password := self.password) is not None:
            # The first metadata have to contain the user: creating a user later takes one to sign in with. The tool
            # reads the password from a file, because other users of the machine can read command lines.
            write_whole(arguments, f"--add-scram\n{MECHANISM}=[name={USER},password={password}]\n".encode())
            options.append(f"@{arguments}")
        flags = ("-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOG4J}")
        launch = Launch(command=(*self._java(), *self._java_options, *flags, *options), folder=self._folder)
        try:
            said = run_to_end(launch, self._folder / "format.log", FORMAT_SECONDS)
        finally:
            arguments.unlink(missing_ok=True)
        if said is not None:
            raise PartFailedError(f"Kafka could not create its files in {self._data}:\n{said}")
