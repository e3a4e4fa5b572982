"""Tests that rows with longer keys or values than topics and indexes allow become dead letters, and no others do."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from caraway.dtypes.types import INT, STRING
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref, When
from caraway.graph.operators import Assign, AssignedColumn, Filter, Input, Latest, Operator, Select
from caraway.spark.jobs import Trigger, start_job
from caraway.topics.admin import ensure_topics
from caraway.topics.codec import MAX_RECORD_BYTES
from caraway.topics.dead_letters import DEAD_LETTERS
from caraway.topics.keys import MAX_KEY_BYTES
from tests.integration.spark import pipelines as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.pipelines import SOURCES, Case

ARRIVALS = model.traffic(seed=5, count=100)
SLIM = Select(of=Input(dataset="Clicks"), columns=("user", "number"))
IS_THREE = Binary(op=BinaryOp.EQ, left=Ref(name="number"), right=Literal(value=3, dtype=INT))
IS_OTHER = Binary(op=BinaryOp.NE, left=Ref(name="number"), right=Literal(value=3, dtype=INT))
SHORT = Literal(value="short", dtype=STRING)


def _long_at_three(size: int) -> Node:
    return When(branches=((IS_THREE, Literal(value="x" * size, dtype=STRING)),), otherwise=SHORT)


def _with_text(of: Operator, text: Node) -> Operator:
    return Assign(of=of, columns=(AssignedColumn(name="text", dtype=STRING, expr=text),))


def _by_text(of: Operator, text: Node) -> Operator:
    return Latest(of=_with_text(of, text), keys=("user", "text"))


OTHERS = Filter(of=SLIM, predicate=IS_OTHER)
CASES = {
    "LongKeys": (
        Case("LongKeys", _by_text(SLIM, _long_at_three(MAX_KEY_BYTES)), same=_by_text(OTHERS, SHORT)),
        f"at most {MAX_KEY_BYTES:,} can be indexed",
    ),
    "LongRows": (
        Case("LongRows", _with_text(SLIM, _long_at_three(MAX_RECORD_BYTES)), same=_with_text(OTHERS, SHORT)),
        f"at most {MAX_RECORD_BYTES:,} fit",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_too_long_are_dead_letters(
    name: str, broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    case, said = CASES[name]
    _, job = model.plan(case, f"sizes-{name.lower()}")
    (source,) = job.inputs
    ensure_topics(broker.bootstrap_servers, [source.name, job.output.name, DEAD_LETTERS], 1)
    broker.send(source, model.sent(SOURCES["Clicks"], source, ARRIVALS["Clicks"]))
    query = start_job(
        spark,
        job,
        bootstrap_servers=broker.bootstrap_servers,
        checkpoint=tmp_path / job.job_id,
        checkpoint_interval_seconds=5,
        trigger=Trigger.BACKLOG,
    )
    query.awaitTermination()
    assert query.exception() is None
    expected = model.expected(case, ARRIVALS)
    view = model.held(job.output, model.derived(case.name, case.operator))
    assert broker.receive(job.output, expected, view=view) == expected
    sent = [arrival for arrival in ARRIVALS["Clicks"] if arrival.row["number"] == 3]
    letters = model.letters(broker, job, len(sent))
    assert len(letters) == len(sent) > 0
    for letter in letters:
        assert letter["operator"] == "output"
        assert all(said in reason["message"] for reason in letter["reason"])
