"""Tables of Delta and of Hudi with a million rows, which change while they are read, whatever is killed meanwhile.

Each change must be on the topic once, and the rows that the topic has in the end must be those that the table's own
library reads.
"""

# mypy: disable-error-code="attr-defined"

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from caraway import dataset, field, meta
from caraway.connectors import source
from caraway.dataplane.topics.codec import DELETE
from caraway.graph.specs import Graph
from caraway.process.settings.connectors import SourcesSettings
from tests.integration.server.kills import kill_at_random
from tests.integration.server.server_process import ServerProcess, end_of, eventually, records
from tests.integration.spark.broker import Broker
from tests.services.hudi import HudiTables, running_hudi
from tests.services.stores import Store, StoreName, copy_folder, running_store

BEGIN = 1_700_000_000
MANY = 1_000_000
# The rows that a Delta table has at first, and those that are added to it at a time.
DELTA_FIRST, DELTA_PART = 400_000, 100_000
# The rows that are written into a Hudi table at a time, and those of a partition. Hudi takes seconds for a commit, so
# there are few; a change is read from whole partitions, anew after each kill, so they are small.
HUDI_PART, PARTITION = 250_000, 25_000
SCHEMA = "pot long, moisture double, at timestamp, part string"
HUDI = {
    "hoodie.datasource.write.recordkey.field": "pot",
    # The cleaner would remove files that a server that is killed again and again hasn't read yet.
    "hoodie.clean.automatic": "false",
    "hoodie.index.bloom.num_entries": str(PARTITION),
}

# Starts a server with a broker of its own.
Apart = Callable[..., tuple[ServerProcess, Broker]]
# A change of a row: whether it is there afterwards, its key and its value.
Change = tuple[bool, int, float]


class Lake:
    """A table in a folder of the machine, and its copy in a store, from which a server reads while both are killed."""

    def __init__(self, store: Store, folder: Path, apart: Apart) -> None:
        self.path = folder / "table"
        self._store = store
        self._apart = apart
        self._container = f"lake-{secrets.token_hex(6)}"
        self._system = f"lake_{secrets.token_hex(4)}"
        # The store isn't killed while files are copied to it: the writer isn't what is tested.
        self._lock = Lock()
        store.create(self._container)

    def publish(self) -> None:
        """Copy what is new, and start the store anew: Azurite writes its list of blobs for sure when it is stopped."""
        with self._lock:
            copy_folder(self._store, self.path, self._container, "tables/pots")
            self._store.server.stop()
            self._store.server.start()

    def check(
        self,
        table_format: str,
        change: Callable[[], Counter[Change]],
        is_read: Callable[[Mapping[str, Any]], bool],
        *,
        chosen: Random,
    ) -> dict[int, float]:
        """Read the table while it changes, and check that each of its changes is on the topic once.

        Args:
            table_format: The format of the table.
            change: Changes the table, and returns all changes of its rows from the beginning on.
            is_read: Returns whether the source has read everything, by its position.
            chosen: Chooses the moments of kills and the victims.

        Returns:
            The rows that the topic has in the end: their values by their keys.
        """

        @meta(owner="a@b.co")
        @source(
            self._store.connector(self._system, self._container, prefix="tables/pots", format=table_format),
            disorder="30d",
            cdc="upsert" if table_format == "hudi" else "native",
            every="1s",
        )
        @dataset
        class Pots:
            pot: int = field(key=True)
            moisture: float
            at: datetime = field(timestamp=True)

        server, broker = self._apart(sources=SourcesSettings(endpoints={self._system: self._store.server.address}))
        kafka = broker.bootstrap_servers
        server.commit(Graph(datasets=(Pots.to_spec(),)))
        topic = server.made_topic("Pots")
        # The source begins with the table as it is when its first poll comes, which must not have any of the changes.
        eventually(lambda: end_of(kafka, topic) > 0, server.said)
        with ThreadPoolExecutor(1) as thread:
            changes = thread.submit(change)
            kills = kill_at_random(
                server,
                broker,
                lambda: changes.done() and end_of(kafka, topic) >= changes.result().total(),
                chosen=chosen,
                # A slow machine needs some time to take rows between two kills.
                pause_s=(0.5, 10),
                others={"store": self._kill_store},
            )
        assert all(kills[victim] for victim in ("server", "broker", "store")), kills
        # A row that comes twice may come after all those that are awaited.
        eventually(lambda: is_read(server.source()["position"]), lambda: f"{server.source()}")
        found = [msgspec.msgpack.decode(value) for value in records(kafka, topic)]
        assert Counter((record[2] != DELETE, *record[7][:2]) for record in found) == changes.result()
        return consolidated(found)

    def _kill_store(self) -> None:
        with self._lock:
            self._store.server.kill()
            self._store.server.start()


def consolidated(found: list[list[Any]]) -> dict[int, float]:
    """Return the values of the rows that records make, by their keys: that of the latest time counts."""
    state: dict[int, tuple[int, float | None]] = {}
    for _, _, op, time_us, _, _, _, (pot, moisture, *_) in found:
        if pot not in state or time_us >= state[pot][0]:
            state[pot] = (time_us, None if op == DELETE else moisture)
    return {pot: moisture for pot, (_, moisture) in state.items() if moisture is not None}


@pytest.mark.full(reason="a million rows, and kills of server, broker and store at random moments")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["gcs", "azure"])
def test_a_million_rows_of_a_delta_table_survive_kills_at_random_moments(
    apart: Apart, tmp_path: Path, name: StoreName
) -> None:
    with running_store(name, tmp_path / "store", keeps=True) as store:
        lake = Lake(store, tmp_path, apart)
        url = str(lake.path)
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(url, pots(range(DELTA_FIRST)), configuration=feed)
        lake.publish()

        def change() -> Counter[Change]:
            for number, first in enumerate(range(DELTA_FIRST, MANY, DELTA_PART)):
                write_deltalake(url, pots(range(first, first + DELTA_PART)), mode="append")
                later = {"moisture": f"moisture + {number} + 1", "at": "at + interval '1' day"}
                DeltaTable(url).update(predicate=f"pot % 97 = {number}", updates=later)
                DeltaTable(url).delete(f"pot % 89 = {number}")
                lake.publish()
            # Rows that are only written to other files are no changes.
            DeltaTable(url).optimize.compact()
            lake.publish()
            there = pa.table(DeltaTable(url).load_cdf(starting_version=0)).to_pydict()
            each = zip(there["_change_type"], there["pot"], there["moisture"], strict=True)
            return Counter((kind != "delete", pot, value) for kind, pot, value in each if kind != "update_preimage")

        def is_read(position: Mapping[str, Any]) -> bool:
            return bool(position) and position["version"] > DeltaTable(url).version()

        found = lake.check("delta", change, is_read, chosen=Random(31))
        rows = pa.table(DeltaTable(url).to_pyarrow_table()).to_pydict()
        assert found == dict(zip(rows["pot"], rows["moisture"], strict=True))


def pots(numbers: range) -> Any:
    at = pa.array([(BEGIN + number) * 1_000_000 for number in numbers], pa.timestamp("us", "UTC"))
    values = pa.array([0.5] * len(numbers), pa.float64())
    return pa.table({"pot": pa.array(numbers, pa.int64()), "moisture": values, "at": at})


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiTables]:
    with running_hudi(tmp_path_factory.mktemp("hudi")) as tables:
        yield tables


@pytest.mark.full(reason="a million rows, kills of server, broker and store at random moments, and Hudi's own writer")
@pytest.mark.timeout(1800)
def test_a_million_rows_of_a_hudi_table_survive_kills_at_random_moments(
    hudi: HudiTables, apart: Apart, tmp_path: Path
) -> None:
    with running_store("gcs", tmp_path / "store", keeps=True) as store:
        lake = Lake(store, tmp_path, apart)
        changes = Counter[Change]()

        def write(operation: str, numbers: range, moisture: float, days: int) -> None:
            rows = [
                {
                    "pot": number,
                    "moisture": moisture,
                    "at": datetime.fromtimestamp(BEGIN + number + days * 86_400, UTC).isoformat(),
                    "part": f"p{number // PARTITION}",
                }
                for number in numbers
            ]
            hudi.write(lake.path, rows, operation, schema=SCHEMA, options=HUDI)
            lake.publish()
            changes.update((True, number, moisture) for number in numbers)

        write("bulk_insert", range(HUDI_PART), 0.5, 0)

        def change() -> Counter[Change]:
            for number, first in enumerate(range(HUDI_PART, MANY, HUDI_PART), start=1):
                write("bulk_insert", range(first, first + HUDI_PART), 0.5, 0)
                write("upsert", range(number, 2 * PARTITION, 97), number + 0.5, number)
                write("upsert", range(first - 2 * PARTITION, first, 89), number + 0.25, number)
            return changes

        def is_read(position: Mapping[str, Any]) -> bool:
            # The names of instants begin with the times at which they were requested.
            instants = (lake.path / ".hoodie" / "timeline").glob("2*.*commit*")
            newest = max(file.name.partition(".")[0].partition("_")[0] for file in instants)
            return bool(position) and position["done"] == newest

        found = lake.check("hudi", change, is_read, chosen=Random(37))
        hudi.sql(f"create table pots using hudi location '{lake.path}'")
        rows = hudi.sql("select pot, moisture from pots")
        assert found == {row["pot"]: row["moisture"] for row in rows}
