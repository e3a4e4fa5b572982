"""A broker and a Postgres for benchmarks that run servers of their own."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from caraway.apps.stack import ports
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.process.settings.settings import load_settings
from tests.alone import running


@contextmanager
def services(name: str, kafka: str, postgres: str) -> Iterator[tuple[Path, str, str]]:
    """Start the services that aren't given; yield a temporary folder and the addresses of broker and database.

    Args:
        name: The beginning of the folder's name.
        kafka: A broker that runs already, "host:port", or "".
        postgres: The address of a database that is there already, or "".
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        with ExitStack() as stack:
            if not kafka:
                port = ports.choose()
                jars = ensure_jars(load_settings())
                broker = EmbeddedKafka(
                    folder / "kafka",
                    port=port,
                    controller_port=ports.choose(avoid=[port]),
                    jars=jars.broker,
                    with_password=False,
                )
                stack.enter_context(running(broker, folder / "kafka.log"))
                kafka = broker.bootstrap_servers
            if not postgres:
                database = EmbeddedPostgres(folder / "postgres", ports.choose())
                stack.enter_context(running(database, folder / "postgres.log"))
                postgres = database.url
            yield folder, kafka, postgres
    finally:
        shutil.rmtree(folder, ignore_errors=True)
