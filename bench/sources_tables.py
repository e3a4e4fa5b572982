"""Tables as sources: processor time of the readers of Postgres, MySQL and Snowflake, beside their drivers alone.

    python -m bench sources_tables [--rows 300000] [--json FILE]

The table has ten columns and an index on its cursor. "Alone" is the driver, which reads the same columns in the order
of the cursor by one statement, in one thread, and keeps nothing. The reader reads the table in pages by cursor and
primary key, makes the digests of all rows, and hands over batches of columns. Both are measured some times by turns,
and the best times are compared. Times are those of this process's processor, so the servers and other programs on the
machine count for little. The servers are private ones: Postgres, MariaDB for MySQL, and for Snowflake fakesnow in a
process of its own.

For Postgres the stages of the reader that take most are measured as well: fetching its pages, and making the digests of
ten thousand rows.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
from pymysql.cursors import SSCursor
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.dataplane.sources.tables.database import Page
from caraway.dataplane.sources.tables.digests import Digests
from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING
from tests.integration.tables.systems import MariaDatabase, PostgresDatabase, Reading, field_of
from tests.integration.tables.test_snowflake import Database as SnowflakeDatabase
from tests.services.mariadb import PASSWORD, USER, running_mariadb
from tests.services.postgres import running_postgres
from tests.services.snowflake import Gate, Snowflake, session

FIELDS = {
    "id": INT,
    "customer": STRING,
    "merchant": STRING,
    "amount": FLOAT,
    "items": INT,
    "online": BOOL,
    "note": STRING,
    "ordered": DATETIME,
}
COLUMNS = ", ".join([*FIELDS, "at", "seen"])
CREATE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(40), merchant varchar(40), amount double precision, "
    "items int, online boolean, note varchar(80), ordered {stamp}, at {stamp}, seen {stamp})"
)
FILL = (
    "INSERT INTO orders SELECT n, concat('customer-', n % 10007), concat('merchant-', n % 997), n * 0.01, n % 7, "
    "n % 3 = 0, concat('a note about the order ', n), {at}, {at}, {at} FROM {series}"
)
BATCH = {"rows": 10_000, "size": 4 * 1024 * 1024, "timeout_s": 0.0}
REPEATS = 5

Read = Callable[[], int]
# The ways to read a table: by the driver alone, and by the reader.
Ways = dict[str, Read]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    stages: dict[str, float] = {}
    for name, system in (("Postgres", of_postgres), ("MySQL", of_mysql), ("Snowflake", of_snowflake)):
        with system(options.rows) as (database, driver):
            ways: Ways = {"driver": driver, "reader": partial(read_all, reading_of(database))}
            figures[name] = {what: options.rows / seconds for what, seconds in seconds_of(ways, options.rows).items()}
            if name == "Postgres":
                stages = stages_of(reading_of(database), options.rows)
    report = {
        "bench": "sources_tables",
        "rows": options.rows,
        "rows_per_second": figures,
        "share_of_alone": {name: found["reader"] / found["driver"] for name, found in figures.items()},
        "postgres_us_per_row": stages,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    table = Table("system", "driver alone, rows/s", "reader, rows/s", "share")
    for name, found in figures.items():
        rates = (f"{found['driver']:,.0f}", f"{found['reader']:,.0f}", f"{found['reader'] / found['driver']:.2f}")
        table.add_row(name, *rates)
    out.print(table)
    parts = Table("stage of the reader of Postgres", "us/row")
    for stage, us in stages.items():
        parts.add_row(stage, f"{us:.2f}")
    out.print(parts)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def seconds_of(ways: Ways, rows: int) -> dict[str, float]:
    """Return the shortest processor time of each way, in seconds."""
    times: dict[str, list[float]] = {what: [] for what in ways}
    for _ in range(REPEATS):
        for what, read in ways.items():
            begin = time.process_time()
            found = read()
            times[what].append(time.process_time() - begin)
            if found != rows:
                raise ValueError(f"the {what} read {found:,} rows")
    return {what: min(seconds) for what, seconds in times.items()}


def stages_of(reading: Reading, rows: int) -> dict[str, float]:
    """Return the processor time of the stages of a reader, in microseconds for a row."""
    reader = reading.reader()
    reader.seek({}, {})
    choice, database = reader._chosen, reader._database  # noqa: SLF001 (its stages are measured)
    most = database.bounds(choice.cursor).greatest
    page = Page(columns=choice.names, keys=choice.keys, least=None, most=most, after=None, limit=None)
    chunks = list(database.rows(replace(page, limit=10_000)))
    count = sum(map(len, chunks))

    def digests() -> int:
        made = Digests(1, keys=choice.keys, digested=len(choice.digested), columns=len(choice.names), has_key=True)
        return sum(len(made.of(chunk)[0]) for chunk in chunks)

    fetched = seconds_of({"pages": lambda: sum(map(len, database.rows(page)))}, rows)["pages"] / rows
    digested = seconds_of({"digests": digests}, count)["digests"] / count
    reader.close()
    return {"pages as rows of Python": fetched * 1e6, "digests": digested * 1e6}


def read_all(reading: Reading) -> int:
    """Read the table by a reader, and return how many rows there were."""
    reader = reading.reader()
    reader.seek({}, {})
    count = 0
    try:
        while (batch := reader.poll(**BATCH)) is not None:  # type: ignore[arg-type]
            count += len(batch.rows)
    finally:
        reader.close()
    return count


def reading_of(database: Any) -> Reading:
    """Return how the table is read."""
    return Reading(database, "orders", fields=[field_of(name, dtype) for name, dtype in FIELDS.items()])


@contextmanager
def of_postgres(rows: int) -> Iterator[tuple[Any, Read]]:
    """Yield a database of Postgres with the table, and a way to read it by the driver."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.chmod(folder, 0o755)  # noqa: S103, PTH101 (Postgres runs as another user)
        server = stack.enter_context(running_postgres(Path(folder) / "postgres"))
        database = PostgresDatabase(server.url)
        stack.callback(database.close)
        database.execute(CREATE.format(stamp="timestamp"))
        at = "timestamp '2024-05-01' + n * interval '10 milliseconds'"
        database.execute(FILL.format(at=at, series=f"generate_series(1, {rows}) AS n"))
        database.execute("CREATE INDEX orders_at ON orders (at); ANALYZE orders")

        def driver() -> int:
            with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
                return sum(1 for _ in cursor.stream(f"SELECT {COLUMNS} FROM orders ORDER BY at", size=500))  # noqa: S608 (constants)

        yield database, driver


@contextmanager
def of_mysql(rows: int) -> Iterator[tuple[Any, Read]]:
    """Yield a database of MySQL with the table, and a way to read it by the driver."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running_mariadb(Path(folder)))
        database = MariaDatabase(server, "bench")
        stack.callback(database.close)
        database.execute(CREATE.format(stamp="datetime(6)"))
        at = "timestamp '2024-05-01 00:00:00' + interval (n * 10000) microsecond"
        series = f"(SELECT seq AS n FROM seq_1_to_{rows}) AS numbers"  # noqa: S608 (a number)
        database.execute(FILL.format(at=at, series=series))
        database.execute("CREATE INDEX orders_at ON orders (at)")

        def driver() -> int:
            with (
                pymysql.connect(
                    host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database="bench"
                ) as connection,
                connection.cursor(SSCursor) as cursor,
            ):
                cursor.execute(f"SELECT {COLUMNS} FROM orders ORDER BY at")  # noqa: S608 (constants)
                count = 0
                while found := cursor.fetchmany(500):
                    count += len(found)
                return count

        yield database, driver


@contextmanager
def of_snowflake(rows: int) -> Iterator[tuple[Any, Read]]:
    """Yield a database of Snowflake with the table, and a way to read it by the driver."""
    with tempfile.TemporaryDirectory() as folder:
        server = Snowflake(Path(folder))
        server.start()
        database = SnowflakeDatabase(server.port, Gate())
        try:
            names = ", ".join(f'"{name.upper()}"' for name in [*FIELDS, "at", "seen"])
            database.execute(
                f"CREATE TABLE orders AS SELECT {names} FROM (SELECT n AS id, 'customer-' || (n % 10007) AS customer, "  # noqa: S608 (constants)
                "'merchant-' || (n % 997) AS merchant, n * 0.01::double AS amount, n % 7 AS items, "
                "n % 3 = 0 AS online, 'a note about the order ' || n AS note, "
                "'2024-05-01'::timestamp + n * interval '10 milliseconds' AS ordered, "
                'ordered AS "AT", ordered AS seen '
                f"FROM (SELECT unnest(range({rows})) AS n))"
            )

            def driver() -> int:
                with session(server.port) as connection, connection.cursor() as cursor:
                    cursor.execute(f'SELECT {names} FROM orders ORDER BY "AT"')  # noqa: S608 (constants)
                    count = 0
                    while found := cursor.fetchmany(500):
                        count += len(found)
                    return count

            yield database, driver
        finally:
            database.close()
            server.stop()


if __name__ == "__main__":
    raise SystemExit(main())
