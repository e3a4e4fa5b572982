"""Pauses: how long jobs in real-time mode stand still at their checkpoints, one alone and many side by side.

    python bench/pauses.py [--jobs 1,20] [--rate 500] [--interval 10] [--seconds 60] [--only NAME,...] [--conf K=V ...]

`--rate` is the rate of all jobs together: each job reads all events, so with 20 jobs a twentieth as many events are
sent. A record's time is the time from its event until the job's producer made the record for its output (Kafka's time
stamp), so that no reader of the output disturbs. `pause` is the time of a batch beyond its interval, as Spark reports
it; `children` is processor time of processes that the JVM started, for each job and checkpoint.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from operator_cases import CASES
from operators import Bench, Filled, environment, fill, plan
from pyspark.sql.streaming.query import StreamingQuery
from rich.table import Table

from caraway.apps.cli.output import out
from caraway.dataplane.streams.engine.spark_runtime import staggered
from caraway.dataplane.streams.spark.java import jvm_process
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.blocks import parts_of
from caraway.dataplane.topics.codec import RecordCodec
from caraway.graph.plan.model import JobMode, JobPlan, RecordSchema

KEYS = 1000
# Seconds before the measurement: the JIT compiler is busy for this long after the first query has started.
WARM_UP_SECONDS = 40.0
# Seconds at the end that are left out, because their events may still be under way.
LEFT_OUT_SECONDS = 2.0


@dataclass(frozen=True)
class Figure:
    """The results for one number of jobs; times in milliseconds."""

    jobs: int
    records: int
    p50: float
    p99: float
    p999: float
    greatest: float
    pauses: int
    pause_p50: float
    pause_max: float
    children: float
    parts: Mapping[str, float]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="join,aggregate", help=f"in turn of {', '.join(CASES)}")
    parser.add_argument("--jobs", default="1,20", help="numbers of jobs, one for each run")
    parser.add_argument("--rate", type=float, default=500.0, help="events a second, times the number of jobs")
    parser.add_argument("--interval", type=int, default=10, help="seconds between checkpoints, before staggering")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    parser.add_argument("--heap", default="1g", help="heap of the JVM")
    parser.add_argument("--conf", action="append", default=[], help="a setting of Spark's")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    conf = {"spark.sql.streaming.numRecentProgressUpdates": "200", **dict(c.split("=", 1) for c in options.conf)}
    figures = []
    with environment(options.heap, conf) as bench:
        inputs = fill(bench, KEYS, KEYS)
        for jobs in map(int, options.jobs.split(",")):
            figures.append(measure(bench, inputs, options.only.split(","), jobs, options))
            print(json.dumps(vars(figures[-1])), flush=True)
    show(figures)
    report = {"bench": "pauses", "figures": [vars(figure) for figure in figures], "cpus": os.cpu_count()}
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def measure(
    bench: Bench, inputs: Mapping[str, Filled], names: Sequence[str], jobs: int, options: argparse.Namespace
) -> Figure:
    """Run jobs under a steady rate of events."""
    outputs = [f"out-{number}-{uuid4().hex[:8]}" for number in range(jobs)]
    ensure_topics(bench.bootstrap_servers, outputs, 1)
    plans = [
        plan(names[number % len(names)], JobMode.REAL_TIME, dict(inputs), output)
        for number, output in enumerate(outputs)
    ]
    queries: list[StreamingQuery] = []
    stop = threading.Event()
    sender = threading.Thread(target=_send, args=(bench, inputs["Clicks"], options.rate / jobs, stop))
    try:
        for job in plans:
            queries += [_start(bench, job, options.interval)]
        sender.start()
        time.sleep(WARM_UP_SECONDS)
        since, children = time.time(), _children_seconds(bench)
        time.sleep(options.seconds)
        children = _children_seconds(bench) - children
        until = time.time() - LEFT_OUT_SECONDS
        reports = [
            (job.job_id, json.loads(p.json)) for job, q in zip(plans, queries, strict=True) for p in q.recentProgress
        ]
    finally:
        stop.set()
        if sender.ident is not None:
            sender.join()
        failures = [query.exception() for query in queries]
        for query in queries:
            query.stop()
    for failure in failures:
        if failure is not None:
            raise failure
    times = sorted(ms for job in plans for ms in _times(bench, job.output.name, job.output.schema, since, until))
    return _figure(jobs, times, [(job, p) for job, p in reports if _end(p) > since], children, options.interval)


def _start(bench: Bench, job: JobPlan, interval: int) -> StreamingQuery:
    return start_job(
        bench.session,
        job,
        bootstrap_servers=bench.bootstrap_servers,
        checkpoint=bench.folder / "checkpoints" / job.job_id,
        checkpoint_interval_seconds=staggered(interval, job.job_id),
    )


def _figure(
    jobs: int, times: Sequence[float], reports: Sequence[tuple[str, dict[str, Any]]], children: float, interval: int
) -> Figure:
    pauses, parts = [], defaultdict[str, list[float]](list)
    for job, progress in reports:
        durations = progress["durationMs"]
        pauses.append(durations["triggerExecution"] - 1000 * staggered(interval, job))
        for name, ms in durations.items():
            if name not in {"triggerExecution", "addBatch"}:
                parts[name].append(ms)
        parts["addBatch"].append(durations["addBatch"] - 1000 * staggered(interval, job))
        for operator in progress["stateOperators"]:
            parts["commitTimeMs"].append(operator["commitTimeMs"])
            for name, ms in operator["customMetrics"].items():
                if "Latency" in name or name.endswith("Ms"):
                    parts[name].append(ms)
    return Figure(
        jobs=jobs,
        records=len(times),
        p50=times[len(times) // 2],
        p99=times[len(times) * 99 // 100],
        p999=times[len(times) * 999 // 1000],
        greatest=times[-1],
        pauses=len(pauses),
        pause_p50=statistics.median(pauses),
        pause_max=max(pauses),
        children=round(1000 * children / len(pauses), 1),
        parts={name: statistics.median(values) for name, values in sorted(parts.items()) if any(values)},
    )


def _end(progress: Mapping[str, Any]) -> float:
    """Return the time at which a batch was done, in seconds since 1970."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return begun + float(progress["durationMs"]["triggerExecution"]) / 1000


def _send(bench: Bench, clicks: Filled, rate: float, stop: threading.Event) -> None:
    codec = RecordCodec(clicks.topic.schema)
    producer = Producer({"bootstrap.servers": bench.bootstrap_servers, "linger.ms": 0})
    started, number = time.monotonic(), 0
    while not stop.wait(max(0.0, started + number / rate - time.monotonic())):
        row = [number * 7919 % KEYS, float(number % 100), f"note {number % 10}"]
        now_us = time.time_ns() // 1000
        value = codec.encode_value(op=1, time_us=now_us, ingested_us=0, row=row, record_id=None, rev=None)
        producer.produce(clicks.topic.name, value, codec.encode_key([]))
        producer.poll(0)
        number += 1
    producer.flush(10)


def _times(bench: Bench, topic: str, schema: RecordSchema, since: float, until: float) -> list[float]:
    """Return how long each event between `since` and `until` was under way, in milliseconds."""
    codec = RecordCodec(schema)
    consumer = Consumer({"bootstrap.servers": bench.bootstrap_servers, "group.id": "pauses"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    first: dict[int, float] = {}
    position = 0
    while position < end:
        for message in consumer.consume(10_000, 0.5):
            position = (message.offset() or 0) + 1
            for record in map(codec.decode_value, parts_of(message.value() or b"")):
                if since <= record.time / 1e6 <= until:
                    first.setdefault(record.time, message.timestamp()[1] - record.time / 1000)
    consumer.close()
    return list(first.values())


def _children_seconds(bench: Bench) -> float:
    """Return the processor time of children of the JVM that have ended (proc(5): fields 16 and 17)."""
    fields = Path(f"/proc/{jvm_process(bench.session).pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def show(figures: Sequence[Figure]) -> None:
    """Print a table."""
    table = Table(title="event sent to record written, and pauses at checkpoints, ms")
    headings = ("jobs", "p50", "p99", "p99.9", "max", "checkpoints", "pause p50", "pause max", "children")
    for heading in headings:
        table.add_column(heading, justify="right")
    for f in figures:
        cells = (f.p50, f.p99, f.p999, f.greatest, f.pauses, f.pause_p50, f.pause_max, f.children)
        table.add_row(str(f.jobs), *(f"{cell:.1f}" for cell in cells))
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
