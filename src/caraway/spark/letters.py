"""Rows at which a step fails: dead letters, and a job that goes on.

A query has one sink, but Kafka's takes the topic of each row. So such a row becomes a pass-through row of the side
`DEAD` (`caraway.spark.inputs`), whose payload is the letter, and leaves the job beside its records. For the steps
behind it is as if the record had never come: where an earlier revision may have gone out, it becomes retracted.
"""

import json
import operator as operators
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that everybody knows)

from caraway.plan.model import JobPlan
from caraway.spark.codec import DEAD, ID, INGESTED, KEY, META, OP, OWN, PACKED, RETRACT, REV, SIDE, TIME, name
from caraway.spark.java import call_java, jvm_of
from caraway.spark.stream import Stream
from caraway.topics import MAX_PAYLOAD

_LETTER, _AS = "$letter", "$as"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A way in which a step fails.

    Attributes:
        failed: Whether a row does.
        field: The column that isn't to be had, if it is about one.
        message: What is wrong with it.
        traceback: The last lines of a Python traceback, if there is one.
    """

    failed: Column
    field: str | None
    message: Column
    traceback: Column | None = None


class LetterCount:
    """How many dead letters a job has written since it was started; rows that are done again count again."""

    def __init__(self, session: SparkSession, job_id: str) -> None:
        """Begin at zero, in the session that the job will run in."""
        jvm = jvm_of(session)
        self._accumulator: Any = jvm.org.apache.spark.SparkContext.getOrCreate().longAccumulator(
            f"{job_id} dead letters"
        )
        self._counted = jvm.io.caraway.Letters.counted(self._accumulator)

    def counted(self, letter: Column) -> Column:
        """Return the letter, which is counted as it passes."""
        return call_java(self._counted, letter)

    @property
    def value(self) -> int:
        """The number; in real-time mode as of the last checkpoint."""
        return int(self._accumulator.value())


def evaluate(
    before: Stream, computed: Mapping[str, Column], reasons: Sequence[Reason], operator: str, plan: JobPlan
) -> Stream:
    """Compute columns for the rows of a stream, and take out those at which that fails.

    Args:
        before: The stream.
        computed: The columns by the names that they get, beside those of the stream.
        reasons: The ways in which they fail.
        operator: How the step is called in a letter.
        plan: The job.
    """
    new = [column.alias(column_name) for column_name, column in computed.items()]
    if not reasons:
        return replace(before, frame=before.frame.select("*", *new))
    before = before.with_pass_through()
    failed = reduce(operators.or_, (F.coalesce(reason.failed, F.lit(False)) for reason in reasons))  # noqa: FBT003 (a value)
    letter = F.when(before.puts() & failed, _letter(before, reasons, operator, plan))
    frame = before.frame.select("*", *new, letter.alias(_LETTER))
    dead, side, op = name(_LETTER).isNotNull(), name(SIDE), name(OP)
    if before.revised:
        # Two rows: the letter, and the retraction of what an earlier revision may have been.
        sides = F.when(dead, F.array(F.lit(OWN), F.lit(DEAD))).otherwise(F.array(side))
        frame = frame.select("*", F.explode(sides).alias(_AS))
        side, op = name(_AS), F.when(dead, F.lit(RETRACT)).otherwise(op)
    else:
        side = F.when(dead, F.lit(DEAD)).otherwise(side)
    frame = frame.select(
        *(op.alias(OP) if part == OP else name(part) for part in META),
        side.alias(SIDE),
        F.when(dead, name(ID)).otherwise(name(KEY)).alias(KEY),
        F.coalesce(name(_LETTER), name(PACKED)).alias(PACKED),
        *(name(column) for column in (*before.columns, *computed)),
    )
    return replace(before, frame=frame)


def _letter(before: Stream, reasons: Sequence[Reason], operator: str, plan: JobPlan) -> Column:
    head = {"dataset": plan.dataset, "pipeline": plan.pipeline, "operator": operator, "job": plan.job_id}
    told = F.array_compact(
        F.array(
            *(
                F.when(
                    reason.failed,
                    F.struct(
                        F.lit(reason.field).cast("string").alias("field"),
                        reason.message.alias("message"),
                        (F.lit(None).cast("string") if reason.traceback is None else reason.traceback).alias(
                            "traceback"
                        ),
                    ),
                )
                for reason in reasons
            )
        )
    )
    columns = [name(TIME if c == before.timestamp else c).alias(c) for c in before.types]
    row = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    # As `caraway.ingest` has it: a row that is too large is the head of its text.
    shown = F.when(F.length(row) <= MAX_PAYLOAD, row).otherwise(_quoted(F.substring(row, 1, MAX_PAYLOAD)))
    now_us = F.reflect(F.lit("java.lang.System"), F.lit("currentTimeMillis")).cast("long") * 1000
    tail = F.to_json(
        F.struct(
            F.hex(name(ID)).alias("id"),
            F.hex(name(REV)).alias("rev"),
            name(TIME).alias("event_time"),
            name(INGESTED).alias("ingested"),
            now_us.alias("time"),
        )
    )
    text = F.concat(
        F.lit(json.dumps(head, ensure_ascii=False)[:-1] + ', "reason": '),
        F.to_json(told, {"ignoreNullFields": "true"}),
        F.lit(', "row": '),
        shown,
        F.lit(", "),
        F.substring(tail, 2, 2**30),
    )
    return text.cast("binary")


def _quoted(text: Column) -> Column:
    """Return text as a JSON string."""
    return F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)^\{"t":(.*)\}$', 1)
