"""Kills in the middle of everything: of the JVM, the engine, the broker, the index, and the process that counts rows.

A graph with joins, a dedup, users' functions and aggregates over four windows runs in an engine of its own process
while events come in. All the while counts are read that can only grow; in the end all values must be those of the
in-process engine, and the counts of expectations must be those of plain Python.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from caraway.dataplane.streams.engine.engine import EXIT_JVM_DIED
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dtypes.types import FLOAT, INT, STRING, ListType, optional
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.capture.shipping import python_function
from caraway.graph.operators import (
    Aggregate,
    AssignFunction,
    Changelog,
    Dedup,
    DropNull,
    Explode,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Union,
)
from caraway.graph.plan.model import JobPlan
from caraway.graph.windows import ContinuousWindow, HoppingWindow
from tests.integration.engine.rig import Rig, is_gone
from tests.integration.spark.broker import Broker
from tests.parity.comparing import Difference, Expected, differing, expectations
from tests.parity.counting import CountingProcess, differing_counts
from tests.parity.graphs import Case, check, derived, source_of, with_dataset
from tests.parity.indexing import KillableIndex
from tests.parity.traces import Arrival
from tests.parity.traffic import Part, Traffic
from tests.parity.values import BASE, SECOND
from tests.timeouts import deadline_in, scaled

USERS = [f"u{n}" for n in range(6)]
SKUS = [f"s{n}" for n in range(5)]
TAGS = ["x", "y", "z"]
MINUTE = HoppingWindow(length_us=60 * SECOND, stride_us=60 * SECOND)
#: Counts that can only grow, and of which keys.
GROWING = {"ByUser": USERS, "BySku": SKUS, "Twice": USERS, "Tagged": TAGS, "Scaled": USERS}
LENGTHS = [None, 3600 * SECOND, 60 * SECOND, 10 * SECOND]
#: A checkpoint lies within.
LONGEST_WAIT_S = 7.0
STARTED_S = 240.0
AGREED_S = 240.0
LATE = BASE + 10**15


class Victim(StrEnum):
    """The processes that are killed."""

    JVM = "JVM"
    ENGINE = "engine"
    BROKER = "broker"
    INDEX = "index"
    COUNTING = "counting"


def crash_case(rows: int, seed: int) -> Case:
    """Make the graph, and so many events that come in no order.

    `Prices` is written once and then stays; `Shops` and `Owners` change all the while: joins correct themselves.
    """
    rng = Random(seed)
    texts = ListType(STRING)
    events = source_of(
        "Events",
        {"user": STRING, "sku": STRING, "n": INT},
        {"amount": FLOAT, "note": optional(STRING), "tags": texts},
        keyed=False,
    )
    prices = source_of("Prices", {"sku": STRING}, {"price": FLOAT})
    shops = source_of("Shops", {"sku": STRING}, {"shop": STRING, "fee": FLOAT})
    owners = source_of("Owners", {"shop": STRING}, {"owner": STRING})
    sources = (events, prices, shops, owners)
    case = Case(seed, sources, {spec.name: () for spec in sources})
    event, shop = Input(dataset="Events"), Input(dataset="Shops")
    priced = _join(event, "Prices", JoinKind.INNER, ("price",))
    # Behind a join that corrects itself, and keyed by what that brings.
    by_shop = _join(priced, "Shops", JoinKind.LEFT, ("shop", "fee"))
    # A table and a group to which a row belongs by what a join has brought: another one in each run, for a moment.
    moved = _join(priced, "Shops", JoinKind.INNER, ("shop",))
    owned = _join(Latest(of=moved, keys=("user",)), "Owners", JoinKind.LEFT, ("owner",), on="shop")
    function = python_function("Scaled", lambda frame: frame["amount"] * 2)
    tagged = Explode(of=DropNull(of=event, columns=("note",)), columns=("tags",))
    wanted: dict[str, Operator] = {
        "ByUser": _windows(event, "user", "amount"),
        "BySku": _windows(priced, "sku", "price"),
        "ByShop": _windows(by_shop, "shop", "fee"),
        "Fees": _totals(shop, "shop", "fee"),
        "Owned": owned,
        "Opened": First(of=moved, keys=("shop",)),
        "Newest": Latest(of=event, keys=("user",)),
        "Oldest": First(of=event, keys=("user", "sku")),
        "Priced": priced,
        "Distinct": _windows(Dedup(of=event, by=("user", "sku"), window=MINUTE), "user", "amount"),
        "Moves": _windows(Changelog(of=shop, column="begins", marks_inserts=True), "shop", "fee"),
        "Twice": _windows(Union(left=event, right=event), "user", "amount"),
        "Tagged": _windows(tagged, "tags", "amount"),
        # In micro-batches.
        "Scaled": _windows(AssignFunction(of=event, column="amount", dtype=FLOAT, function=function), "user", "amount"),
    }
    for name, operator in wanted.items():
        case = with_dataset(case, derived(operator, name, {spec.name: spec for spec in case.datasets}))
        check(case)
    made = [_event(rng, number) for number in range(rows)]
    fixed = [Arrival(n, BASE - 10**12, {"sku": s, "price": n + 0.1, "at": BASE - 10**12}) for n, s in enumerate(SKUS)]
    moves = [_move(rng, number) for number in range(rows // 5)]
    takeovers = [_takeover(rng, number) for number in range(rows // 10)]
    arrivals = [made, fixed, moves, takeovers]
    return Case(seed, case.datasets, {spec.name: tuple(found) for spec, found in zip(sources, arrivals, strict=True)})


def _event(rng: Random, number: int) -> Arrival:
    time_us = BASE + rng.randrange(-3600, 3600) * SECOND + rng.randrange(3)
    row = {"user": rng.choice(USERS), "sku": rng.choice(SKUS), "n": number, "amount": rng.random(), "at": time_us}
    row |= {"note": rng.choice([None, "a"]), "tags": [rng.choice(TAGS) for _ in range(rng.randrange(3))]}
    return Arrival(number, time_us, row)


def _move(rng: Random, number: int) -> Arrival:
    time_us = BASE + rng.randrange(-3600, 3600) * SECOND
    row = {"sku": rng.choice(SKUS), "shop": f"shop{rng.randrange(3)}", "fee": rng.randrange(9) / 4, "at": time_us}
    return Arrival(number, time_us, row, delete=rng.random() < 0.2)


def _takeover(rng: Random, number: int) -> Arrival:
    time_us = BASE + rng.randrange(-3600, 3600) * SECOND
    row = {"shop": f"shop{rng.randrange(3)}", "owner": rng.choice(USERS), "at": time_us}
    return Arrival(number, time_us, row, delete=rng.random() < 0.2)


def _join(left: Operator, right: str, how: JoinKind, fields: tuple[str, ...], on: str = "sku") -> Join:
    return Join(
        left=left,
        right=right,
        how=how,
        left_on=(on,),
        right_on=(on,),
        within_low_us=None,
        within_high_us=0,
        fields=fields,
    )


def _windows(of: Operator, key: str, column: str) -> Aggregate:
    aggregates = [
        aggregate
        for number, length_us in enumerate(LENGTHS)
        for aggregate in (
            _aggregate(AggregateFunction.COUNT, f"count{number}", None, length_us),
            _aggregate(AggregateFunction.SUM, f"sum{number}", column, length_us),
        )
    ]
    return Aggregate(of=of, keys=(key,), aggregates=tuple(aggregates))


def _totals(of: Operator, key: str, column: str) -> Aggregate:
    return Aggregate(of=of, keys=(key,), aggregates=_windows(of, key, column).aggregates[:2])


def _aggregate(function: AggregateFunction, into: str, of: str | None, length_us: int | None) -> AggregateSpec:
    dtype = INT if function is AggregateFunction.COUNT else FLOAT
    window = ContinuousWindow(length_us=length_us)
    return AggregateSpec(function=function, into=into, of=of, window=window, default=None, dtype=dtype)


@dataclass
class Watch:
    """Reads counts that can only grow, all the while; `regressed` tells where one went back."""

    traffic: Traffic
    regressed: list[str] = field(default_factory=list)
    reads: int = 0

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        part = self.traffic.parts[0]
        greatest: dict[tuple[str, str], int] = {}
        while not self._ended.wait(0.01):
            for dataset, keys in GROWING.items():
                for key, count in zip(keys, self._counts(part, dataset, keys), strict=True):
                    before = greatest.get((dataset, key), 0)
                    if count < before:
                        self.regressed.append(f"{dataset} of {key} went from {before} to {count}")
                    greatest[dataset, key] = count
            self.reads += 1

    def _counts(self, part: Part, dataset: str, keys: Sequence[str]) -> list[int]:
        plan = part.index(dataset)
        codec = RecordCodec(plan.schema)
        columns, _ = self.traffic.index.read(plan, [codec.encode_key([key]) or b"" for key in keys], LATE, ["count0"])
        return [count if isinstance(count, int) else 0 for count in columns[0]]


@dataclass(frozen=True)
class Scene:
    """All that can be killed, and what is fed to it."""

    traffic: Traffic
    rig: Rig
    broker: Broker
    index: KillableIndex
    counting: CountingProcess

    @property
    def jobs(self) -> Sequence[JobPlan]:
        return self.traffic.parts[0].plan.jobs

    def wait_until_all_run(self) -> None:
        wanted = ["running"] * len(self.jobs)
        self.rig.wait_for(lambda beat: [job["state"] for job in beat["jobs"].values()] == wanted, STARTED_S)


def crash(scene: Scene, victims: Sequence[Victim], tell: Callable[[str], None]) -> None:
    """Feed the one case of `traffic` in as many bursts as there are victims, and kill each in the middle."""
    rng, traffic = Random(len(victims)), scene.traffic
    lots = traffic.lots(2 * len(victims) + 1)
    traffic.open()
    fixed = [item for lot in lots for item in lot if item[1] == "Prices"]
    traffic.send(fixed)
    lots = [[item for item in lot if item[1] != "Prices"] for lot in lots]
    scene.rig.want(scene.jobs)
    scene.rig.start()
    scene.wait_until_all_run()
    for number, victim in enumerate(victims):
        traffic.send(lots[2 * number])
        time.sleep(rng.uniform(0, LONGEST_WAIT_S))
        traffic.send(lots[2 * number + 1])
        time.sleep(rng.choice([0.0, 0.1, 0.5]))
        _kill(scene, victim)
        tell(f"kill {number + 1} of {len(victims)}: {victim}")
        if rng.random() < 0.7:
            scene.wait_until_all_run()
    traffic.send(lots[-1])


def _kill(scene: Scene, victim: Victim) -> None:
    rig, jvm = scene.rig, scene.rig.jvm_if_any()
    match victim:
        case Victim.BROKER:
            scene.broker.kill()
            time.sleep(0.5)
            scene.broker.start()
        case Victim.INDEX:
            scene.index.kill()
        case Victim.COUNTING:
            scene.counting.kill()
        case Victim.ENGINE:
            rig.process.kill()
            rig.process.wait()
            assert jvm is None or is_gone(jvm, 20), "a JVM without its driver works on"
            rig.start()
        # Without one it is just being started again.
        case Victim.JVM if jvm is not None:
            jvm.kill()
            assert rig.process.wait(scaled(90)) == EXIT_JVM_DIED, rig.log()
            rig.start()
        case Victim.JVM:
            pass


def settled(traffic: Traffic, counting: CountingProcess) -> list[Difference]:
    """Wait until both engines agree, and return where they don't in the end, or where rows are counted otherwise."""
    wanted = expectations(traffic)
    deadline = deadline_in(AGREED_S)
    while (found := _differences(traffic, wanted)) and time.monotonic() < deadline:
        time.sleep(1)
    if not found:
        # Nothing that comes late may change it: a checkpoint later it must be the same.
        time.sleep(LONGEST_WAIT_S)
        found = _differences(traffic, wanted)
    counting.settle()
    return [*found, *(one for part in traffic.parts for one in differing_counts(traffic, part, counting))]


def _differences(traffic: Traffic, wanted: Sequence[Expected]) -> list[Difference]:
    return [difference for expected in wanted for difference in differing(traffic, expected)]
