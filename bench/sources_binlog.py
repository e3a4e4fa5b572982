"""Change capture: processor time of a MariaDB table's load and log, beside the client libraries alone.

    python -m bench sources_binlog [--rows 100000] [--json FILE]

Rows have an int, two texts, a float and an instant. "Alone" is PyMySQL for the load, with one query whose rows become
Python's values, and mysql-replication for the log, whose events become dicts. The reader hands over batches with
envelopes and marks. In the third column the envelopes are also converted to the records of a dataset. Times are those
of this process's processor, so the server and other programs on the machine count for little.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
from capture_report import POLL_BYTES, POLL_ROWS, options_of, read, report, sales
from pymysql.cursors import Cursor, SSCursor
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.cdc.reader import CaptureReader
from caraway.dataplane.sources.reader import Position, SourceContext
from caraway.graph.connectors import CaptureConnector
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.systems import MySQLSystem
from tests.services.mariadb import DATABASE, PASSWORD, USER, running_mariadb

TABLE = """
CREATE TABLE sales (id int PRIMARY KEY, customer varchar(40), item varchar(40), amount double, at timestamp(3) NULL)
"""
ROWS = """
INSERT INTO sales SELECT seq, concat('customer-', seq % 10007), concat('item-', seq % 997), seq / 100,
    now(3) + INTERVAL seq * 1000 MICROSECOND
FROM seq_{}_to_{}
"""


def main() -> int:
    """Run the benchmark."""
    options = options_of(__doc__, 100_000)
    count: int = options.rows
    found: dict[str, dict[str, float]] = {"load": {}, "log": {}}
    with tempfile.TemporaryDirectory() as folder, running_mariadb(Path(folder)) as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
        cursor = pymysql.connect(**login, database=DATABASE, autocommit=True).cursor()
        cursor.execute(TABLE)
        cursor.execute(ROWS.format(1, count))
        found["load"]["alone"] = count / processor_s(lambda: load_alone(cursor))
        target, readers = opened(server.port)
        for name, reader in readers.items():
            conversion = target if name == "converted" else None
            found["load"][name] = count / processor_s(lambda r=reader, t=conversion: read(r, t, count))  # type: ignore[misc]
        cursor.execute("SHOW MASTER STATUS")
        file, position = (cursor.fetchone() or ())[:2]
        # Transactions of usual sizes.
        for start in range(count + 1, 2 * count, 1_000):
            cursor.execute(ROWS.format(start, min(start + 999, 2 * count)))
        found["log"]["alone"] = count / processor_s(lambda: log_alone(login, str(file), int(position), count))
        for name, reader in readers.items():
            conversion = target if name == "converted" else None
            found["log"][name] = count / processor_s(lambda r=reader, t=conversion: read(r, t, count))  # type: ignore[misc]
            reader.close()
    report("sources_binlog", "rows_per_processor_second", "library alone", found, options)
    return 0


def processor_s(work: Callable[[], None]) -> float:
    """Return the processor time that some work takes in this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def load_alone(cursor: Cursor) -> None:
    """Read the table by PyMySQL."""
    with cursor.connection.cursor(SSCursor) as rows:
        rows.execute("SELECT * FROM sales")
        while rows.fetchmany(1_000):
            pass


def log_alone(login: dict[str, object], file: str, position: int, count: int) -> None:
    """Read the inserts by mysql-replication."""
    stream = BinLogStreamReader(
        login,
        server_id=77,
        blocking=True,
        resume_stream=True,
        log_file=file,
        log_pos=position,
        only_events=[WriteRowsEvent],
        enable_logging=False,
    )
    left = count
    while left > 0:
        left -= len(stream.fetchone().rows)
    stream.close()


def opened(port: int) -> tuple[Target, dict[str, CaptureReader]]:
    """Return two readers that have begun to read the log, and the dataset of the second one's rows."""
    system = MySQLSystem(name="bench", host="127.0.0.1", port=port, database=DATABASE, username=USER, password=PASSWORD)
    connector = CaptureConnector(system=system, table="sales")
    spec = sales(connector)
    context = SourceContext(name="bench", source=spec.sources[0], dataset=spec, columns=None, resolve=str)
    readers = {"reader": CaptureReader(connector, context), "converted": CaptureReader(connector, context)}
    for reader in readers.values():
        reader.seek({}, {})
        position: Position = {}
        while "at" not in position:
            batch = reader.poll(rows=POLL_ROWS, size=POLL_BYTES, timeout_s=0.1)
            position = position if batch is None else batch.position
    return Target(plan_graph(Graph(datasets=(spec,))).ingests[0]), readers


if __name__ == "__main__":
    raise SystemExit(main())
