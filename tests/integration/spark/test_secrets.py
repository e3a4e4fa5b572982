"""Tests of jobs whose functions need secrets, on topics from which keys were erased."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dataplane.topics.erased_keys import encode_erasure
from caraway.dataplane.topics.producer import TopicWriter
from caraway.dtypes.types import INT
from caraway.errors import UnknownEntityError
from caraway.expr.nodes import Binary, BinaryOp, Literal, Ref
from caraway.graph.capture.shipping import python_function
from caraway.graph.erase_keys import Erasure
from caraway.graph.operators import AssignFunction, Filter, Input
from caraway.graph.plan.model import JobMode
from caraway.graph.runtime import secret_provider
from caraway.lib import secrets
from caraway.process.secrets.port import open_port
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import SOURCES, Case

ARRIVALS = model.traffic(seed=23, count=60)
BAD = 5
VALUE = "7-is-the-secret"


def _known(name: str) -> str:
    if name != "factor":
        raise UnknownEntityError(f"there is no secret {name!r}")
    return VALUE


def _times(frame: pd.DataFrame) -> "pd.Series[Any]":
    value = secrets.get("factor")
    if (frame["number"] == BAD).any():
        raise ValueError(f"no multiple of {value}")
    return frame["number"] * int(value.partition("-")[0])


SECRET = Case(
    "Secret",
    AssignFunction(of=Input(dataset="Clicks"), column="next", dtype=INT, function=python_function("test", _times)),
    lambda row: row["number"] == BAD,
)
PLAIN = Case(
    "Plain",
    Filter(
        of=Input(dataset="Clicks"),
        predicate=Binary(op=BinaryOp.GT, left=Ref(name="number"), right=Literal(value=0, dtype=INT)),
    ),
)


@pytest.fixture
def _provider() -> Iterator[None]:
    token = secret_provider.set(_known)
    yield
    secret_provider.reset(token)


@pytest.mark.usefixtures("_provider")
def test_jobs_use_secrets_tell_none_and_pass_over_erasures(
    broker: Broker, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = {case.name: model.plan(case, "secrets")[1] for case in (SECRET, PLAIN)}
    assert {job.mode for job in jobs.values()} == set(JobMode)
    (source,) = {topic.name: topic for job in jobs.values() for topic in job.inputs}.values()
    ensure_topics(broker.bootstrap_servers, [source.name, *(j.output.name for j in jobs.values()), DEAD_LETTERS], 1)
    records = list(model.sent(SOURCES["Clicks"], source, ARRIVALS["Clicks"]))
    key, value = encode_erasure(Erasure(("user",), "a key", b"d" * 16))
    port = open_port(_known)
    with TopicWriter(broker.bootstrap_servers) as writer:
        # An erasure comes first, in the middle, and last.
        for part in (records[:20], records[20:], []):
            writer.write_to_all(source.name, key, value).result(60)
            broker.send(source, part)
    queries = [
        start_job(
            spark,
            job,
            bootstrap_servers=broker.bootstrap_servers,
            checkpoint=tmp_path / job.job_id,
            checkpoint_interval_seconds=5,
            letters=LetterCount(spark, job.job_id),
        )
        for job in jobs.values()
    ]
    try:
        for case in (SECRET, PLAIN):
            job, expected = jobs[case.name], model.expected(case, ARRIVALS)
            assert len(expected) > 5
            view = model.held(job.output, model.derived(case.name, case.operator))
            assert broker.receive(job.output, expected, view=view, limit=200) == expected
        wanted = [a for a in ARRIVALS["Clicks"] if SECRET.is_poison("Clicks", a)]
        letters = model.letters(broker, jobs[SECRET.name], len(wanted))
        assert len(letters) == len(wanted) > 0
        assert all("no multiple of ***" in str(letter["reason"]) for letter in letters)
        assert VALUE not in str(letters)
        assert [query.exception() for query in queries] == [None, None]
    finally:
        for query in queries:
            query.stop()
        port.close()
    left = [path for path in tmp_path.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert left == []
    said = capfd.readouterr()
    assert VALUE not in said.out + said.err
