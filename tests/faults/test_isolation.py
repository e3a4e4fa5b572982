"""Users' functions that do their worst, beside a job that has nothing to do with them, in one driver."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from caraway.dataplane.streams.functions.children import Limits, limits_conf
from caraway.dataplane.streams.spark.jobs import start_job
from caraway.dataplane.streams.spark.letters import LetterCount
from caraway.dataplane.topics.admin import ensure_topics
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.dtypes.types import INT
from caraway.graph.capture.shipping import python_function
from caraway.graph.operators import AssignFunction, FilterFunction, Input
from caraway.graph.plan.model import JobPlan
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import SOURCES, Case

ARRIVALS = model.traffic(seed=11, count=60)
#: A number that functions cannot stand; few rows have it.
BAD = 5
LIMITS = Limits(seconds=10.0, memory_mb=64)


def _is_bad(frame: pd.DataFrame) -> bool:
    return bool((frame["number"] == BAD).any())


def _exits(frame: pd.DataFrame) -> "pd.Series[Any]":
    if _is_bad(frame):
        os._exit(3)
    return frame["number"] + 1


def _devours(frame: pd.DataFrame) -> "pd.Series[Any]":
    held = []
    while _is_bad(frame):
        held.append(bytearray(1 << 24))
    return frame["number"] + 1


def _hangs(frame: pd.DataFrame) -> "pd.Series[Any]":
    while _is_bad(frame):
        pass
    return frame["number"] + 1


def _kills(frame: pd.DataFrame) -> "pd.Series[Any]":
    os._exit(len(frame) % 7 + 1)


def _case(function: Callable[[pd.DataFrame], Any]) -> Case:
    name = function.__name__.removeprefix("_").title().replace("_", "")
    step = AssignFunction(
        of=Input(dataset="Clicks"), column="next", dtype=INT, function=python_function("test", function)
    )
    return Case(name, step, lambda row: row["number"] == BAD)


CASES = {
    _case(_exits): "ended its process (exit code 3)",
    _case(_devours): "needs more than 64 MB of memory",
}
HANGING = _case(_hangs)
USELESS = _case(_kills)
INNOCENT = Case(
    "Innocent",
    FilterFunction(of=Input(dataset="Clicks"), function=python_function("test", lambda frame: frame["number"] > 0)),
)


@dataclass(frozen=True)
class Run:
    broker: Broker
    jobs: dict[str, JobPlan]
    queries: dict[str, StreamingQuery]
    letters: dict[str, LetterCount]

    def agrees(self, case: Case) -> None:
        expected = model.expected(case, ARRIVALS)
        assert len(expected) > 10
        job = self.jobs[case.name]
        view = model.held(job.output, model.derived(case.name, case.operator))
        assert self.broker.receive(job.output, expected, view=view, limit=200) == expected
        assert self.queries[case.name].exception() is None


@pytest.fixture(scope="module")
def run(broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    for key, value in limits_conf(LIMITS).items():
        spark.conf.set(key, value)
    cases = [*CASES, HANGING, USELESS, INNOCENT]
    jobs = {case.name: model.plan(case, "isolation")[1] for case in cases}
    sources = {topic.dataset: topic for job in jobs.values() for topic in job.inputs}
    names = [topic.name for topic in (*sources.values(), *(job.output for job in jobs.values()))]
    ensure_topics(broker.bootstrap_servers, [*names, DEAD_LETTERS], 1)
    letters = {name: LetterCount(spark, job.job_id) for name, job in jobs.items()}
    for dataset, topic in sources.items():
        broker.send(topic, model.sent(SOURCES[dataset], topic, ARRIVALS[dataset]))
    queries = {
        name: start_job(
            spark,
            job,
            bootstrap_servers=broker.bootstrap_servers,
            checkpoint=folder / job.job_id,
            checkpoint_interval_seconds=5,
            letters=letters[name],
        )
        for name, job in jobs.items()
    }
    yield Run(broker, jobs, queries, letters)
    for query in queries.values():
        query.stop()


@pytest.mark.parametrize(("case", "reason"), CASES.items(), ids=[case.name for case in CASES])
def test_bad_rows_are_letters_and_all_others_are_there(case: Case, reason: str, run: Run) -> None:
    _are_letters(case, run, reason)


def test_a_function_that_loops_for_ever_costs_its_rows_and_some_time(run: Run) -> None:
    _are_letters(HANGING, run, "did not end within")


def test_a_function_that_always_ends_its_process_fails_its_job_alone(run: Run) -> None:
    query = run.queries[USELESS.name]
    assert query.awaitTermination(200) if query.exception() is None else True
    assert "assign: column next: its function _kills ended its process" in str(query.exception())
    run.agrees(INNOCENT)


def _are_letters(case: Case, run: Run, reason: str) -> None:
    run.agrees(case)
    wanted = [a for a in ARRIVALS["Clicks"] if case.is_poison("Clicks", a)]
    assert wanted
    letters = model.letters(run.broker, run.jobs[case.name], len(wanted))
    assert [letter["row"]["number"] for letter in letters] == [BAD] * len(wanted)
    assert all(reason in letter["reason"][0]["message"] for letter in letters), letters[0]["reason"]
    assert run.letters[case.name].value >= len(wanted)
