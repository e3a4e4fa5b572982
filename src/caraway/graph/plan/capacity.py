"""An estimate of the processors and disks that a plan needs at given rates, from what each step of an event costs.

The costs were measured on one machine (docs/operate/scaling.md), so the answer is an order of magnitude, and its parts
can be compared with each other. Everything is counted in processor time, since a thread that waits for a network or a
disk leaves its core to others.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from caraway.errors import InvalidInputError
from caraway.graph import operators as ops
from caraway.graph.plan.model import GraphPlan, IndexKind, IndexPlan, JobPlan
from caraway.graph.plan.steps import state_of
from caraway.graph.trees import parents
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

SECOND_US = 1_000_000
DAY_S = 86_400
# A thread may be busy for at most this share of its time. With a busier thread, rows that arrive at the same time wait
# too long for their turn.
BUSY = 0.7
#: `Capacity.shards` says for each of these numbers of shards how great the rates may be.
SHARDS = (1, 2, 4, 8, 16, 32, 64)
# If doubling the shards multiplies the possible rates by less than this, further shards are hardly of use
# (`Shards.bends`).
BEND = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """The costs of one event, row or request, in microseconds of processor time or bytes of a disk.

    Attributes:
        request: An HTTP request that logs rows, without the rows.
        row: A row of such a request, until it is on its topic.
        topic: A record that is written to a topic by the broker, in blocks.
        reader: The same record for each reader of the topic, in the broker.
        archive: A record of a topic in the archive's process.
        step: A record of a job that keeps no rows: read, changed and sent.
        state: A record of a step of a job that keeps rows, such as a join.
        index_few: A record of an index with `few` keys or fewer, in the index's thread.
        index_many: A record of an index with `many` keys or more.
        few: A number of keys whose tiles stay in the memory of the index's thread.
        many: A number of keys of which each record finds another one.
        query: A query of one row.
        query_row: Each further row of a query.
        call: A call of another server, if the index is divided.
        index_bytes: A record in an index.
        key_bytes: The tiles of a key in an index.
        topic_bytes: A record on a topic, and in its table of the archive.
    """

    request: float = 250.0
    row: float = 4.0
    topic: float = 1.0
    reader: float = 0.4
    archive: float = 1.6
    step: float = 2.4
    state: float = 33.0
    index_few: float = 12.0
    index_many: float = 26.0
    few: int = 1_000
    many: int = 1_000_000
    query: float = 230.0
    query_row: float = 33.0
    call: float = 740.0
    index_bytes: float = 48.0
    key_bytes: float = 170.0
    topic_bytes: float = 60.0

    def index(self, keys: float) -> float:
        """Return what a record costs an index with this number of keys, in microseconds."""
        share = math.log(max(keys, 1.0) / self.few) / math.log(self.many / self.few)
        return self.index_few + (self.index_many - self.index_few) * min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The rates and sizes for which a plan is estimated.

    Attributes:
        rates: Events a second, by dataset: of each with a source, and of any other whose rate isn't that of its inputs.
        keys: The number of keys, by dataset; `default_keys` for others.
        default_keys: The number of keys of a dataset that isn't among `keys`.
        days: For how many days rows are kept.
        batch: How many rows a log request has.
        queries: Queries a second.
        query_rows: How many rows a query has.
        hottest: The share of the most frequent key in the events, from 0 to 1.
    """

    rates: Mapping[str, float]
    keys: Mapping[str, float]
    default_keys: float = 100_000.0
    days: float = 30.0
    batch: int = 100
    queries: float = 0.0
    query_rows: int = 1
    hottest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the deployment.

    Attributes:
        name: The part, such as a job or an index.
        rate: Records a second.
        cores: The processor time that it takes each second, in seconds.
        bytes: The size of its files on a disk.
        note: A remark, such as the limit of its process.
    """

    name: str
    rate: float
    cores: float
    bytes: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The rates that a number of shards takes, each on a server of its own.

    Attributes:
        shards: The number.
        busiest: The cores that the thread of the busiest shard would need.
        times: How many times the rates that were asked for all shards take together.
        bends: True if twice as many shards as before take hardly more.
    """

    shards: int
    busiest: float
    times: float
    bends: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The processors, disks and shards that a plan needs.

    Attributes:
        parts: The parts, from the requests to the queries.
        cores: The processor time of all of them each second, in seconds.
        bytes: The size of their files.
        needed_shards: The least number of shards whose threads aren't too busy; None if no number suffices.
        shards: The rates that each of `SHARDS` takes.
    """

    parts: tuple[Part, ...]
    cores: float
    bytes: float
    needed_shards: int | None
    shards: tuple[Shards, ...]


def capacity(plan: GraphPlan, load: Load, costs: UnitCosts | None = None) -> Capacity:
    """Return the processors, disks and shards that a plan needs.

    Args:
        plan: The plan of all definitions.
        load: The rates and sizes.
        costs: The costs of an event; by default, those that were measured.

    Raises `InvalidInputError` if a rate or a number of keys names no dataset, or a dataset with a source has no rate.
    """
    unit = costs or UnitCosts()
    rates = _rates(plan, load)
    logged = sum(rates[name] for name in {ingest.dataset.name for ingest in plan.ingests})
    kept_s = load.days * DAY_S
    parts = [
        Part(
            name="log requests",
            rate=logged,
            cores=(logged * unit.row + logged / load.batch * unit.request) / SECOND_US,
        )
    ]
    # Each topic has one reader from the start: the archive, which reads all topics.
    readers = {topic.name: 1 for topic in plan.topics}
    for job in plan.jobs:
        for topic in job.inputs:
            readers[topic.name] += 1
    for index in plan.indexes:
        readers[index.topic] += 1
    sent = {topic.name: rates[topic.dataset] for topic in plan.topics}
    written = sum(sent.values())
    parts += [
        Part(
            name="broker",
            rate=written,
            cores=sum(rate * (unit.topic + readers[name] * unit.reader) for name, rate in sent.items()) / SECOND_US,
            bytes=written * kept_s * unit.topic_bytes,
        ),
        Part(
            name="archive",
            rate=written,
            cores=(archived := written * unit.archive / SECOND_US),
            bytes=written * kept_s * unit.topic_bytes,
            note="more than its one process takes" if archived > BUSY else "",
        ),
        *(_job(job, rates, unit) for job in plan.jobs),
    ]
    indexes = [_index(index, sent[index.topic], load, unit) for index in plan.indexes]
    parts += indexes
    busy = sum(part.cores for part in indexes)
    needed = _needed(busy, load.hottest)
    parts.append(_queries(load, unit, needed or SHARDS[-1]))
    return Capacity(
        parts=tuple(parts),
        cores=sum(part.cores for part in parts),
        bytes=sum(part.bytes for part in parts),
        needed_shards=needed,
        shards=tuple(_shards(busy, load.hottest)),
    )


def _rates(plan: GraphPlan, load: Load) -> dict[str, float]:
    """Return the events a second of each dataset."""
    datasets = [topic.dataset for topic in plan.topics]
    if unknown := {*load.rates, *load.keys} - set(datasets):
        known = ", ".join(dict.fromkeys(datasets))
        raise InvalidInputError(f"no dataset is called {min(unknown)}; there are {known}")
    rates = dict(load.rates)
    for ingest in plan.ingests:
        if ingest.dataset.name not in rates:
            name = ingest.dataset.name
            raise InvalidInputError(f"dataset {name} has a source, so its rate must be given: --rate {name}=1000")
    # A plan has the jobs in the order of the definitions, so a job may precede the job that computes its input. Each
    # pass takes the jobs whose inputs all have a rate by then.
    left = list(plan.jobs)
    while left:
        ready = [job for job in left if all(topic.dataset in rates for topic in job.inputs)]
        for job in ready:
            rates.setdefault(job.dataset, _rows(job.operator, rates))
        if not ready:
            break
        left = [job for job in left if job not in ready]
    return {dataset: rates.get(dataset, 0.0) for dataset in datasets}


def _rows(operator: ops.Operator, rates: Mapping[str, float]) -> float:
    """Return the rows a second of a step, as if no filter left out any."""
    if isinstance(operator, ops.Input):
        return rates[operator.dataset]
    return sum(_rows(parent, rates) for parent in parents(operator))


def _steps(operator: ops.Operator) -> Iterator[ops.Operator]:
    for parent in parents(operator):
        yield from _steps(parent)
    yield operator


def _job(job: JobPlan, rates: Mapping[str, float], unit: UnitCosts) -> Part:
    read = sum(rates[topic.dataset] for topic in job.inputs)
    keeping = [step for step in _steps(job.operator) if state_of(step, job)]
    cost = read * unit.step + sum(_rows(step, rates) for step in keeping) * unit.state
    note = "keeps rows" if keeping else ""
    return Part(name=f"job {job.dataset}.{job.pipeline}", rate=read, cores=cost / SECOND_US, note=note)


def _index(index: IndexPlan, rate: float, load: Load, unit: UnitCosts) -> Part:
    keys = load.keys.get(index.dataset, load.default_keys)
    rows = rate * _kept_seconds(index, load.days)
    per_key = unit.key_bytes if index.kind is IndexKind.AGGREGATE else 0.0
    return Part(
        name=f"index {index.dataset}" if index.emits is None else f"rows of {index.dataset} for jobs",
        rate=rate,
        cores=rate * unit.index(keys) / SECOND_US,
        bytes=rows * unit.index_bytes + min(keys, rows) * per_key,
        note=f"{keys:,.0f} keys",
    )


def _kept_seconds(index: IndexPlan, days: float) -> float:
    """Return for how long rows of an index are kept; it needs none older than its longest window."""
    windows = [spec.window for spec in index.aggregates]
    lengths = [_length_s(window) for window in windows]
    return min([days * DAY_S, *([max(lengths)] if lengths else [])])


def _length_s(window: ContinuousWindow | HoppingWindow | SessionWindow | None) -> float:
    if window is None or isinstance(window, SessionWindow) or window.length_us is None:
        return math.inf
    return window.length_us / SECOND_US


def _queries(load: Load, unit: UnitCosts, shards: int) -> Part:
    """Return the part of queries: a query calls each other server that has one of its keys."""
    # Keys are spread evenly, so a server has none of a query's keys with a probability of (1 - 1 / shards) ** rows.
    others = (shards - 1) * (1 - (1 - 1 / shards) ** load.query_rows)
    cost = unit.query + (load.query_rows - 1) * unit.query_row + others * unit.call
    note = f"{others:.1f} calls of other servers each" if others else ""
    return Part(name="queries", rate=load.queries, cores=load.queries * cost / SECOND_US, note=note)


def _busiest(busy: float, hottest: float, shards: int) -> float:
    """Return the cores of the shard that has the most frequent key."""
    return busy * (hottest + (1.0 - hottest) / shards)


def _needed(busy: float, hottest: float) -> int | None:
    if busy <= BUSY:
        return 1
    if busy * hottest >= BUSY:
        return None
    return math.ceil((1.0 - hottest) * busy / (BUSY - busy * hottest))


def _shards(busy: float, hottest: float) -> Iterator[Shards]:
    before = 0.0
    for shards in SHARDS:
        busiest = _busiest(busy, hottest, shards)
        times = BUSY / busiest if busiest else math.inf
        yield Shards(shards=shards, busiest=busiest, times=times, bends=before > 0 and times < BEND * before)
        before = times
