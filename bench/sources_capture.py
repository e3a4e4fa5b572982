"""Change capture: processor time of a Postgres table's load and log, beside the client library alone.

    python -m bench sources_capture [--rows 300000] [--json FILE]

Rows have an int, two texts, a float and an instant. "Alone" is psycopg: one query whose rows are made into Python's
values, for the load; the messages of a replication slot, which aren't even parsed, for the log. The reader hands over
batches with marks. In the third column the rows are also converted to the records of a dataset. Times are those of this
process's processor, so the server and other programs on the machine count for little. The log is read in three rounds,
of which the best of each way counts: a way that is faster than the server also spends time on waiting for it, some for
each message if there are other programs.
"""

import secrets
import select
import tempfile
import time
from pathlib import Path

import psycopg
from capture_report import POLL_BYTES, POLL_ROWS, options_of, read, report, sales
from psycopg import pq

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.reader import Position, SourceContext
from caraway.graph.connectors import CaptureConnector
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.systems import PostgresSystem
from tests.services.postgres import running_postgres

TABLE = "CREATE TABLE sales (id int PRIMARY KEY, customer text, item text, amount float8, at timestamptz)"
ROWS = """
INSERT INTO sales SELECT n, 'customer-' || n % 10007, 'item-' || n % 997, n / 100.0, now() + n * interval '1 ms'
FROM generate_series({}, {}) n
"""

ROUNDS = 3


def main() -> int:
    """Run the benchmark."""
    options = options_of(__doc__, 300_000)
    found: dict[str, dict[str, float]] = {"load": {}, "log": {}}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_postgres(Path(folder)) as server,
        psycopg.connect(server.url, autocommit=True) as connection,
    ):
        connection.execute(TABLE)
        connection.execute(ROWS.format(1, options.rows).encode())
        found["load"]["alone"] = options.rows / load_alone(connection)
        measured(server.url, connection, options.rows, found)
    report("sources_capture", "rows_per_processor_second", "psycopg alone", found, options)
    return 0


def load_alone(connection: "psycopg.Connection[tuple[object, ...]]") -> float:
    """Return the seconds of processor time in which psycopg reads the table."""
    begun = time.process_time()
    with connection.cursor() as cursor:
        for _ in cursor.stream("SELECT * FROM sales", size=1_000):
            pass
    return time.process_time() - begun


def log_alone(url: str, slot: str, publication: str, count: int) -> float:
    """Return the seconds of processor time in which libpq, by psycopg, hands over the messages of a slot."""
    stream = pq.PGconn.connect(f"{url}&replication=database".encode())
    begun = time.process_time()
    options = f"proto_version '1', publication_names '{publication}'"
    stream.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 ({options})".encode())
    stream.nonblocking = 1
    left = count
    while left:
        size, data = stream.get_copy_data(1)
        if size > 0:
            left -= bytes(data)[25:26] == b"I"
        else:
            select.select([stream.socket], [], [], 1.0)
            stream.consume_input()
    seconds = time.process_time() - begun
    stream.finish()
    return seconds


def measured(
    url: str, connection: "psycopg.Connection[tuple[object, ...]]", count: int, found: dict[str, dict[str, float]]
) -> None:
    """Measure two readers, one of whose batches are converted, with a load and a log of so many rows each."""
    info = connection.info
    system = PostgresSystem(
        name="bench",
        host=info.host,
        port=info.port,
        database=info.dbname,
        username=info.user,
        password=info.password,
    )
    connector = CaptureConnector(system=system, table="sales")
    spec = sales(connector)
    target = Target(plan_graph(Graph(datasets=(spec,))).ingests[0])
    context = SourceContext(name="bench", source=spec.sources[0], dataset=spec, columns=None, resolve=str)
    readers = {"reader": CaptureReader(connector, context), "converted": CaptureReader(connector, context)}
    for name, reader in readers.items():
        reader.seek({}, {})
        position: Position = {}
        while "at" not in position:
            # The slot is made first; no row is read meanwhile.
            batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=0.1)
            position = position if batch is None else batch.position
        found["load"][name] = count / seconds_of(reader, target if name == "converted" else None, count)
    publication = f"bench_{secrets.token_hex(4)}"
    connection.execute(f"CREATE PUBLICATION {publication} FOR TABLE sales".encode())
    rates: dict[str, list[float]] = {"alone": [], **{name: [] for name in readers}}
    for number in range(ROUNDS):
        slot = f"bench_alone_{number}"
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        connection.execute(ROWS.format((number + 1) * count + 1, (number + 2) * count).encode())
        rates["alone"].append(count / log_alone(url, slot, publication, count))
        for name, reader in readers.items():
            rates[name].append(count / seconds_of(reader, target if name == "converted" else None, count))
    found["log"] = {name: max(each) for name, each in rates.items()}
    for reader in readers.values():
        reader.close()


def seconds_of(reader: CaptureReader, target: Target | None, count: int) -> float:
    """Return the seconds of processor time until a reader has handed over so many rows."""
    begun = time.process_time()
    read(reader, target, count)
    return time.process_time() - begun


if __name__ == "__main__":
    raise SystemExit(main())
