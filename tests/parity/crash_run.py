"""A broker, an engine and an index for crash cycles, from start to end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from caraway.state.migrate import migrate
from tests.integration.databases import new_database, running_postgres
from tests.integration.engine.rig import Rig
from tests.integration.spark.broker import running_broker
from tests.parity.counting import CountingProcess
from tests.parity.crashes import Scene, Victim, Watch, crash, crash_case, settled
from tests.parity.indexing import KillableIndex
from tests.parity.telling import told_difference
from tests.parity.traffic import Traffic


@dataclass(frozen=True)
class Report:
    """The result: values that differ in the end, counts that went back, and how often these were read."""

    differences: list[str]
    regressed: list[str]
    reads: int


def crash_run(folder: Path, victims: Sequence[Victim], *, rows: int, tell: Callable[[str], None]) -> Report:
    """Run the graph of `crashes` while `victims` are killed one after the other."""
    with running_broker(folder) as broker, running_postgres(folder) as server, new_database(server) as database:
        migrate(database)
        index = KillableIndex(broker.bootstrap_servers, folder / "index")
        # The jobs hold 76 slots, since topics have two partitions. With fewer slots than that, they take them from one
        # another at each checkpoint, and may catch up too late.
        room = {"CARAWAY_SPARK__MASTER": "local[96]", "CARAWAY_KAFKA__PARTITIONS": "2"}
        rig = Rig(folder, broker.bootstrap_servers, **room)
        traffic = Traffic(broker.bootstrap_servers, index, [crash_case(rows, seed=rows)], "crash")
        counting = CountingProcess(
            broker.bootstrap_servers, database, folder / "counting", traffic.parts, rng=Random(len(victims))
        )
        watch = Watch(traffic)
        try:
            crash(Scene(traffic, rig, broker, index, counting), victims, tell)
            found = settled(traffic, counting)
            tell(f"{len(victims)} kills, {len(found)} differences, {len(watch.regressed)} regressions")
            if found:
                for job in rig.heartbeat()["jobs"].values():
                    tell(str(job))
                tell(rig.log()[-20_000:])
        finally:
            watch.end()
            counting.stop()
            rig.close()
            index.stop()
        return Report([told_difference(d) for d in found], watch.regressed, watch.reads)
