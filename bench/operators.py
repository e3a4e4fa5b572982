"""Operators: rows a second through one job, from its topics to its output topic, reading a backlog from the beginning.

    python bench/operators.py [--only NAME,...] [--rows 300000] [--keys 1000,...] [--jobs 1,...] [--tasks 1,...]
                              [--mode MODE] [--loaded]

Each figure is the best of some rounds, after one that warms the JVM up. It counts the rows of all inputs from the start
of the query to the last record of its output. Beside it is the processor time of Spark's JVM and its Python processes,
which is the better measure on a machine that does something else too. Spark compiles each query anew, which takes the
processors for the first ten seconds or so: with fewer than a million rows that is most of the measured time.

`--loaded` shows the cost of a row when all keys are in the state already. A job first reads one row of each key (of the
table, if the case joins one), which is a figure of its own, and stops. Then `--rows` events come, to keys in no order,
and the job continues from its checkpoint. Each case has topics of its own, which are dropped afterwards.

`python` is the as-of join as a user would write it for Spark in Python, between the same topics. It always runs in
micro-batches, since real-time mode can't run it, and each batch has at most as many rows (`--python-batch`) as come in
a second: with all rows of a key in one call it would be a batch job, which answers after minutes.
"""

import argparse
import bisect
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from signal import SIGTERM
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pandas as pd
import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from operator_cases import CASES, DAY_US, SECOND, SOURCES
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from reports import publish
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.apps.stack import ports
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EmbeddedKafka
from caraway.dataplane.streams.spark.codec import Codec
from caraway.dataplane.streams.spark.java import jvm_process
from caraway.dataplane.streams.spark.jobs import Trigger, start_job
from caraway.dataplane.streams.spark.session import SessionSettings, caraway_jar, open_session
from caraway.dataplane.topics.admin import drop_topics, ensure_topics
from caraway.dataplane.topics.blocks import records_in
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.polling import poll_some
from caraway.graph.plan.model import JobMode, JobPlan, TopicPlan
from caraway.graph.plan.modes import mode_of
from caraway.graph.plan.planner import plan_graph
from caraway.graph.schemas import datasets_read, schema_of
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, PipelineSpec
from caraway.process.children import process
from caraway.process.settings.settings import load_settings

# Seconds without new output after which a job is done.
QUIET_SECONDS = 3.0
TIMEOUT_SECONDS = 900.0
# Interval between two looks at the broker and the JVM: a hundred looks a second took a quarter of the operators' time.
POLL_SECONDS = 0.2
VERSIONS_PER_KEY = 2
MANY_KEYS = 1_000_000


@dataclass(frozen=True)
class Bench:
    """The environment that all runs share."""

    session: SparkSession
    bootstrap_servers: str
    folder: Path
    python_batch: int = 5_000
    tasks: int = 1


@dataclass(frozen=True)
class Figure:
    """The result of a case."""

    case: str
    mode: str
    rows: int
    keys: int
    jobs: int
    tasks: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_us(self) -> float:
        """The processor time of a row, in microseconds."""
        return self.cpu_seconds * SECOND / self.rows / self.jobs

    @property
    def rate(self) -> float:
        """The number of rows a second, of all jobs together."""
        return self.rows * self.jobs / self.seconds


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"of {', '.join(CASES)}, python")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--keys", default="1000", help="numbers of keys, one for each run")
    parser.add_argument("--jobs", default="1", help="numbers of jobs at the same time, over the same topics")
    parser.add_argument("--tasks", default="1", help="numbers of tasks of each step that keeps rows")
    parser.add_argument("--mode", choices=[*JobMode, "both"], default="both")
    parser.add_argument("--python-rows", type=int, default=40_000, help="rows for the join in Python")
    parser.add_argument(
        "--python-batch", type=int, default=5_000, help="greatest number of rows that it reads at a time"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds after one that warms the JVM up; 0: that one counts"
    )
    parser.add_argument("--loaded", action="store_true", help="measure events whose keys are all in the state already")
    parser.add_argument("--heap", default="1500m", help="heap of the JVM")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*CASES, "python"]
    modes = [*JobMode] if options.mode == "both" else [JobMode(options.mode)]
    figures = []
    filled: dict[tuple[int, int], dict[str, Filled]] = {}
    with environment(options.heap, dict(pair.split("=", 1) for pair in options.conf)) as started:
        bench = replace(started, python_batch=options.python_batch)
        for keys, name in product(map(int, options.keys.split(",")), names if options.loaded else ()):
            for mode in (mode for mode in modes if can_run(name, mode)):
                figures += measure_loaded(bench, name, mode, options.rows, keys)
                print(*figures[-2:], sep="\n", flush=True)
        for keys in () if options.loaded else map(int, options.keys.split(",")):
            for name in names:
                rows = options.python_rows if name == "python" else options.rows
                if (rows, keys) not in filled:
                    filled[rows, keys] = fill(bench, rows, keys, {d for n in names for d in _read(n)})
                inputs = filled[rows, keys]
                read = sum(inputs[dataset].rows for dataset in _read(name))
                runs = product(
                    map(int, options.jobs.split(",")),
                    [mode for mode in modes if can_run(name, mode)],
                    map(int, options.tasks.split(",")),
                )
                for jobs, mode, tasks in runs:
                    work = replace(bench, tasks=tasks)
                    times = [measure(work, name, mode, inputs, jobs) for _ in range(options.rounds + 1)]
                    figures.append(Figure(name, mode, read, keys, jobs, tasks, *min(times[1:] or times)))
                    print(name, mode, keys, jobs, tasks, times, f"{figures[-1].rate:,.0f}", flush=True)
    show(figures)
    report = {
        "bench": "operators",
        "figures": [
            {**vars(figure), "rows_per_second": round(figure.rate), "cpu_us": figure.cpu_us} for figure in figures
        ],
    }
    publish(report, options.json)
    return 0


@contextmanager
def environment(heap: str, conf: Mapping[str, str] = MappingProxyType({})) -> Iterator[Bench]:
    """Start a broker and a Spark session with further settings, in a folder that is removed afterwards."""
    jars = ensure_jars(load_settings())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="caraway-bench-")))
        port = ports.choose()
        kafka = EmbeddedKafka(
            folder / "kafka",
            port=port,
            controller_port=ports.choose(avoid=[port]),
            jars=jars.broker,
            heap_mb=512,
            with_password=False,
        )
        kafka.prepare()
        broker = process.start(kafka.launch(), folder / "kafka.log", SIGTERM)
        stack.callback(process.stop, broker, SIGTERM, 20)
        deadline = time.monotonic() + kafka.start_seconds
        while (reason := kafka.check(broker.pid)) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not start: {reason}")
            time.sleep(POLL_SECONDS)
        settings = SessionSettings(
            master="local[256]",
            driver_memory=heap,
            jars=[*jars.connector, caraway_jar()],
            scratch=folder / "spark",
            conf=conf,
        )
        session = open_session(settings)
        stack.callback(session.stop)
        yield Bench(session, kafka.bootstrap_servers, folder)


#: A function from a number to the key, columns and time of a row.
MakeRow = Callable[[int], tuple[list[Any], list[Any], int]]


@dataclass(frozen=True)
class Filled:
    """A topic with rows."""

    topic: TopicPlan
    rows: int


def fill(bench: Bench, rows: int, keys: int, datasets: Collection[str] = tuple(SOURCES)) -> dict[str, Filled]:
    """Write inputs: a table with two versions of each key (one, if there are many), and events after them."""
    topics = _topics(bench, datasets)
    versions = keys * (VERSIONS_PER_KEY if keys < MANY_KEYS else 1)
    step = 30 * DAY_US // rows
    made: dict[str, tuple[int, MakeRow]] = {
        "Clicks": (rows, _click(keys, versions, step)),
        "Users": (versions, lambda i: ([i % keys], [i % keys, f"town {i % 50}", i % 7], i)),
        "Carts": (rows, lambda i: ([i % (rows // 2)], [i % (rows // 2), i * 7919 % keys, i / 8], versions + i * step)),
        "Baskets": (rows, lambda i: ([], [i * 7919 % keys, ["tea", "milk", f"item {i % 10}"]], versions + i * step)),
    }
    for name in datasets:
        count, row = made[name]
        _write(bench.bootstrap_servers, topics[name], count, row)
    return {name: Filled(topics[name], made[name][0]) for name in datasets}


def _topics(bench: Bench, datasets: Collection[str]) -> dict[str, TopicPlan]:
    """Create topics for datasets, under names of their own."""
    plan = plan_graph(Graph(datasets=tuple(SOURCES.values())))
    topics = {t.dataset: replace(t, name=f"{t.name}.{uuid4().hex[:12]}") for t in plan.topics if t.dataset in datasets}
    ensure_topics(bench.bootstrap_servers, [*(topic.name for topic in topics.values()), DEAD_LETTERS], 1)
    return topics


def _click(keys: int, begin_us: int, step_us: int) -> MakeRow:
    """Return a function that makes events in intervals of `step_us`; adjacent ones in the log are of different keys."""
    return lambda i: ([], [i * 7919 % keys, float(i % 100), f"note {i % 10}"], begin_us + i * step_us)


def _write(servers: str, topic: TopicPlan, count: int, row: MakeRow) -> None:
    codec = RecordCodec(topic.schema)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        key, values, time_us = row(number)
        value = codec.encode_value(op=1, time_us=time_us, ingested_us=0, row=values, record_id=None, rev=None)
        while True:
            try:
                producer.produce(topic.name, value, codec.encode_key(key))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise TimeoutError(f"{topic.name}: the broker doesn't take the rows")


def _read(name: str) -> Sequence[str]:
    return ("Clicks", "Users") if name == "python" else datasets_read(CASES[name])


def can_run(name: str, mode: JobMode) -> bool:
    """Return whether a case runs in a mode: cases that call Python run in micro-batches only."""
    return mode is JobMode.MICRO_BATCH or (name != "python" and mode_of(CASES[name])[0] is JobMode.REAL_TIME)


def measure(bench: Bench, name: str, mode: JobMode, inputs: dict[str, Filled], jobs: int) -> tuple[float, float]:
    """Run jobs from the beginning of their topics to the end; return the seconds, and the seconds of processor time."""
    outputs = [f"out-{uuid4().hex[:12]}" for _ in range(jobs)]
    ensure_topics(bench.bootstrap_servers, outputs, 1)
    # Each event makes one record at least. A joined table may have more rows, but a version of it may make no record.
    least = inputs[_read(name)[0]].rows
    started, cpu_before = time.monotonic(), _cpu_seconds(bench)
    queries = [_start(bench, name, mode, inputs, output) for output in outputs]
    try:
        ended = max(_last_record(bench.bootstrap_servers, outputs, least, queries))
        cpu_seconds = _cpu_seconds(bench) - cpu_before
    finally:
        for query in queries:
            query.stop()
        _forget(bench, outputs)
    return ended - started, cpu_seconds


def measure_loaded(bench: Bench, name: str, mode: JobMode, rows: int, keys: int) -> list[Figure]:
    """Run a job over a row of each key, then over `rows` events; return the figures of both."""
    read, events = _read(name), _read(name)[0]
    table = next((dataset for dataset in read if SOURCES[dataset].keys), events)
    if name == "python" or not {events, table} <= {"Clicks", "Users"}:
        raise ValueError(f"--loaded is for clicks, and clicks that are joined with users, not for {name!r}")
    topics = _topics(bench, read)
    inputs = {dataset: Filled(topics[dataset], 0) for dataset in read}
    first: dict[str, MakeRow] = {
        "Clicks": lambda i: ([], [i, float(i % 100), f"note {i % 10}"], i * DAY_US // keys),
        "Users": lambda i: ([i], [i, f"town {i % 50}", i % 7], i * DAY_US // keys),
    }
    _write(bench.bootstrap_servers, topics[table], keys, first[table])
    output = f"out-{uuid4().hex[:12]}"
    ensure_topics(bench.bootstrap_servers, [output], 1)
    written = _RecordCount(bench.bootstrap_servers, output)
    try:
        started, cpu_before = time.monotonic(), _cpu_seconds(bench)
        _start(bench, name, mode, inputs, output, trigger=Trigger.BACKLOG).awaitTermination()
        loading = time.monotonic() - started, _cpu_seconds(bench) - cpu_before
        there = written.read()
        further = _click(keys, DAY_US, DAY_US // rows)
        _write(bench.bootstrap_servers, topics[events], rows, further)
        started, cpu_before = time.monotonic(), _cpu_seconds(bench)
        query = _start(bench, name, mode, inputs, output)
        try:
            (ended,) = _last_record(bench.bootstrap_servers, [output], there + rows, [query])
            going_on = ended - started, _cpu_seconds(bench) - cpu_before
        finally:
            query.stop()
    finally:
        written.close()
        _forget(bench, [output], [topic.name for topic in topics.values()])
    return [
        Figure(f"{name}, a row of each key", mode, keys, keys, 1, bench.tasks, *loading),
        Figure(f"{name}, with all keys", mode, rows, keys, 1, bench.tasks, *going_on),
    ]


def _forget(bench: Bench, outputs: Sequence[str], others: Sequence[str] = ()) -> None:
    """Remove the files and topics of jobs: those of ten million keys take gigabytes."""
    drop_topics(bench.bootstrap_servers, [*outputs, *others])
    for output in outputs:
        shutil.rmtree(bench.folder / "checkpoints" / output, ignore_errors=True)


def _cpu_seconds(bench: Bench) -> float:
    """Return the processor time of the JVM and of the Python processes below it, including those that have ended."""
    jvm = psutil.Process(jvm_process(bench.session).pid)
    own = jvm.cpu_times()
    below = [process.cpu_times() for process in jvm.children(recursive=True)]
    return own.user + own.system + sum(t.user + t.system + t.children_user + t.children_system for t in below)


def _start(
    bench: Bench, name: str, mode: JobMode, inputs: dict[str, Filled], output: str, *, trigger: Trigger | None = None
) -> StreamingQuery:
    checkpoint = bench.folder / "checkpoints" / output
    if name == "python":
        return start_in_python(bench, inputs, output, checkpoint)
    return start_job(
        bench.session,
        plan(name, mode, inputs, output),
        bootstrap_servers=bench.bootstrap_servers,
        checkpoint=checkpoint,
        checkpoint_interval_seconds=60,
        trigger=trigger,
        tasks=bench.tasks,
    )


def plan(name: str, mode: JobMode, inputs: dict[str, Filled], output: str) -> JobPlan:
    """Plan the job of a case between existing topics."""
    operator = CASES[name]
    schema = schema_of(operator, SOURCES)
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in schema.columns.items()
    )
    pipeline = PipelineSpec(name="made", inputs=datasets_read(operator), operator=operator)
    made = DatasetSpec(name="Made", version=1, history_us=0, fields=fields, index=None, pipelines=(pipeline,))
    (job,) = plan_graph(Graph(datasets=(*SOURCES.values(), made))).jobs
    topics = tuple(inputs[topic.dataset].topic for topic in job.inputs)
    return replace(job, job_id=output, mode=mode, inputs=topics, output=replace(job.output, name=output))


def _end_of(consumer: Consumer, topic: str) -> int:
    """Return the length of a topic; a topic that was just created may have no leader for a moment."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return end


class _RecordCount:
    """Counts the records on a topic with one partition: a job writes several into one message."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer, self._topic = Consumer({"bootstrap.servers": servers, "group.id": "bench"}), topic
        self._next = self._records = 0

    def read(self) -> int:
        """Return the number of records that are there now; each is read once."""
        end = _end_of(self._consumer, self._topic)
        if not self._next:
            self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        while self._next < end:
            for message in poll_some(self._consumer, 10_000, 0.5):
                self._records += records_in(message.value())
                self._next = (message.offset() or 0) + 1
        return self._records

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def _last_record(servers: str, topics: Sequence[str], least: int, queries: Sequence[StreamingQuery]) -> list[float]:
    """Wait until topics have their rows and don't grow; return the time of the last record of each."""
    readers = [_RecordCount(servers, topic) for topic in topics]
    counts = [0] * len(topics)
    begun = time.monotonic()
    grown = [begun] * len(topics)
    while min(counts) < least or time.monotonic() - max(grown) < QUIET_SECONDS:
        for number, reader in enumerate(readers):
            count = reader.read()
            if count != counts[number]:
                counts[number], grown[number] = count, time.monotonic()
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
        if time.monotonic() - begun > TIMEOUT_SECONDS:
            raise TimeoutError(f"{min(counts):,} of {least:,} records after {TIMEOUT_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    for reader in readers:
        reader.close()
    return grown


class AsOfJoinInPython(StatefulProcessor):
    """The as-of join as a user writes it for Spark in Python: both sides of a key in one state, in order of time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("sides", "value binary")

    def handleInputRows(  # type: ignore[override]  # noqa: N802 (Spark's name, and one of the types it gives)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803 (Spark's signature)
    ) -> Iterator[pd.DataFrame]:
        """Process rows of both sides: a left one is joined, a right one corrects the left ones that it matches."""
        held = self._state.get() if self._state.exists() else None
        lefts, rights = pickle.loads(held[0]) if held else ([], [])  # noqa: S301 (our own)
        made = []
        for frame in rows:
            for side, time_us, price, town in frame[["side", "time", "price", "town"]].itertuples(index=False):
                if side == 0:
                    bisect.insort(lefts, (time_us, price))
                    at = bisect.bisect_right(rights, time_us, key=lambda right: right[0])
                    made.append((key[0], time_us, price, rights[at - 1][1] if at else None))
                else:
                    bisect.insort(rights, (time_us, town))
                    begin = bisect.bisect_left(lefts, time_us, key=lambda left: left[0])
                    made += [(key[0], of, paid, town) for of, paid in lefts[begin:]]
        self._state.update((pickle.dumps((lefts, rights)),))
        yield pd.DataFrame(made, columns=["user", "time", "price", "town"])

    def close(self) -> None:
        """Close."""


def start_in_python(bench: Bench, inputs: dict[str, Filled], output: str, checkpoint: Path) -> StreamingQuery:
    """Start the as-of join in Python, between the same topics."""
    codec = Codec(bench.session)
    clicks, users = inputs["Clicks"].topic, inputs["Users"].topic
    kafka = (
        bench.session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("subscribe", f"{clicks.name},{users.name}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(bench.python_batch))
        .load()
    )
    left = F.col("topic") == clicks.name
    parts = kafka.select(
        left.alias("left"),
        F.when(left, codec.record(clicks.schema)).alias("l"),
        F.when(~left, codec.record(users.schema)).alias("r"),
    )
    rows = parts.select(
        F.when(F.col("left"), 0).otherwise(1).alias("side"),
        F.coalesce("l.row.user", "r.row.user").alias("user"),
        F.coalesce("l.time", "r.time").alias("time"),
        F.col("l.row.price").alias("price"),
        F.col("r.row.town").alias("town"),
    )
    joined = rows.groupBy("user").transformWithStateInPandas(
        AsOfJoinInPython(), "user long, time long, price double, town string", "Update", "None"
    )
    record = F.to_json(F.struct("user", "time", "price", "town"))
    return (
        joined.select(F.lit(output).alias("topic"), record.cast("binary").alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap_servers)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .start()
    )


def show(figures: Sequence[Figure]) -> None:
    """Print a table."""
    table = Table(title="From topic to topic")
    for heading in ("operator", "mode", "keys", "jobs", "tasks", "rows", "seconds", "rows/s", "us of processor"):
        table.add_column(heading, justify="left" if heading in ("operator", "mode") else "right")
    for f in figures:
        sizes = f"{f.keys:,}", str(f.jobs), str(f.tasks), f"{f.rows:,}"
        table.add_row(f.case, f.mode, *sizes, f"{f.seconds:.1f}", f"{f.rate:,.0f}", f"{f.cpu_us:.1f}")
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
