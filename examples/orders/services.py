"""The systems of the shop, started on this machine without Docker: Postgres, Kafka, and a server that speaks S3."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from caraway.apps.stack import ports
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.process.children.part import Part
from caraway.process.children.process import start, stop
from caraway.process.settings.settings import load_settings

BUCKET = "shop"
# Postgres keeps in its log what logical replication needs.
LOGICAL = "\nwal_level = logical\nmax_replication_slots = 4\nmax_wal_senders = 4\n"
READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Systems:
    """The addresses of the running systems.

    Attributes:
        postgres: The URL of the database.
        kafka: The address of the broker, "host:port".
        s3: The URL of the server that speaks S3.
    """

    postgres: str
    kafka: str
    s3: str

    def environment(self) -> dict[str, str]:
        """Return the environment by which `definitions.py` and the server find the systems."""
        database = urlsplit(self.postgres)
        return {
            "SHOP_POSTGRES_HOST": str(database.hostname),
            "SHOP_POSTGRES_PORT": str(database.port),
            "SHOP_POSTGRES_DATABASE": database.path.strip("/"),
            "SHOP_POSTGRES_USER": str(database.username),
            "SHOP_POSTGRES_PASSWORD": str(database.password),
            # The definitions refer to the password, which the server looks up for them only because this lists it.
            "CARAWAY_SECRETS__ENVIRONMENT": '["SHOP_POSTGRES_PASSWORD"]',
            # The systems are on this machine, and the sink to S3 writes with the server's own identity.
            "CARAWAY_CONNECTORS__LOOPBACK": "true",
            "CARAWAY_CONNECTORS__OWN_RIGHTS": '["s3://shop"]',
            "SHOP_KAFKA": self.kafka,
            "AWS_ENDPOINT_URL": self.s3,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "shop",
            "AWS_SECRET_ACCESS_KEY": "shop",
        }


@contextmanager
def running_systems(folder: Path) -> Iterator[Systems]:
    """Start the systems in a folder, yield their addresses, and stop them at the end."""
    with ExitStack() as stack:
        database = EmbeddedPostgres(folder / "postgres", ports.choose())
        stack.enter_context(_running(database, folder, LOGICAL))
        controller = ports.choose(avoid=[database.port])
        broker = EmbeddedKafka(
            folder / "kafka",
            port=ports.choose(avoid=[database.port, controller]),
            controller_port=controller,
            jars=ensure_jars(load_settings()).broker,
            with_password=False,
        )
        stack.enter_context(_running(broker, folder, ""))
        s3 = stack.enter_context(_object_store(folder))
        yield Systems(postgres=database.url, kafka=broker.bootstrap_servers, s3=s3)


@contextmanager
def _running(part: Part, folder: Path, settings: str) -> Iterator[None]:
    part.prepare()
    if settings:
        with (folder / part.name / "cluster" / "postgresql.conf").open("a") as file:
            file.write(settings)
    process = start(part.launch(), folder / f"{part.name}.log", part.stop_signal)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while (reason := part.check(process.pid)) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{part.name} isn't ready: {reason}; its log is {folder / part.name}.log")
            time.sleep(0.05)
        yield
    finally:
        stop(process, part.stop_signal, part.stop_seconds)


@contextmanager
def _object_store(folder: Path) -> Iterator[str]:
    """Run moto, which keeps its objects in memory, and make the bucket."""
    port = ports.choose()
    url = f"http://127.0.0.1:{port}"
    with (folder / "s3.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _makes_bucket(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise TimeoutError(f"the object store isn't ready; its log is {folder / 's3.log'}")
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait()


def _makes_bucket(url: str) -> bool:
    try:
        # The address is that of the process above.
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
