"""Rows at which a step fails become dead letters, and the job goes on.

A query has only one sink, but the Kafka sink takes the topic from each row. So a failing row becomes a pass-through row
of the side `DEAD` (`caraway.dataplane.streams.spark.inputs`), whose payload is the dead letter, and leaves the job
beside its records. The following steps don't see the row. If they may have seen an earlier revision of it, they get a
retraction.
"""

import json
import operator as operators
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.codec import (
    DEAD,
    ID,
    INGESTED,
    KEY,
    META,
    OP,
    OWN,
    PACKED,
    RETRACT,
    REV,
    SIDE,
    TIME,
    name,
)
from caraway.dataplane.streams.spark.java import call_java, jvm_of
from caraway.dataplane.streams.spark.stream import Stream
from caraway.dataplane.topics.dead_letters import MAX_PAYLOAD
from caraway.graph.plan.model import JobPlan

_LETTER, _AS = "$letter", "$as"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A way in which a step fails for a row.

    Attributes:
        failed: True where the step fails for the row.
        field: The name of the column that can't be computed, if the failure is about one.
        message: The description of the failure.
        traceback: The last lines of a Python traceback, if there is one.
    """

    failed: Column
    field: str | None
    message: Column
    traceback: Column | None = None


class LetterCount:
    """The dead letters that a job has written since it was started; rows that it processes again count again."""

    def __init__(self, session: SparkSession, job_id: str) -> None:
        """Start at zero, in the session in which the job will run."""
        jvm = jvm_of(session)
        self._accumulator: Any = jvm.org.apache.spark.SparkContext.getOrCreate().longAccumulator(
            f"{job_id} dead letters"
        )
        self._counted = jvm.io.caraway.Letters.counted(self._accumulator)

    def counted(self, letter: Column) -> Column:
        """Return the column of dead letters, wrapped so that each one is counted when it is evaluated."""
        return call_java(self._counted, letter)

    @property
    def value(self) -> int:
        """Return the number; in real-time mode as of the last checkpoint."""
        return int(self._accumulator.value())


def evaluate(
    before: Stream, computed: Mapping[str, Column], reasons: Sequence[Reason], operator: str, plan: JobPlan
) -> Stream:
    """Add the `computed` columns to a stream, and turn rows for which a computation fails into dead letters.

    The dead letters name the step as `operator`.
    """
    new = [column.alias(column_name) for column_name, column in computed.items()]
    if not reasons:
        return replace(before, frame=before.frame.select("*", *new))
    before = before.with_pass_through()
    failed = reduce(operators.or_, (F.coalesce(reason.failed, F.lit(False)) for reason in reasons))
    letter = F.when(before.puts() & failed, _letter(before, reasons, operator, plan))
    frame = before.frame.select("*", *new, letter.alias(_LETTER))
    dead, side, op = name(_LETTER).isNotNull(), name(SIDE), name(OP)
    if before.revised:
        # A failing row becomes two: the dead letter, and a retraction, because an earlier revision of the row may have
        # passed this step.
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
    failures = F.array_compact(
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
    # If the JSON of a row has more than `MAX_PAYLOAD` characters, the dead letter contains only the first part of it,
    # as a JSON string. Dead letters of `caraway.dataplane.ingest` are shortened in a similar way.
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
        F.to_json(failures, {"ignoreNullFields": "true"}),
        F.lit(', "row": '),
        shown,
        F.lit(", "),
        F.substring(tail, 2, 2**30),
    )
    return text.cast("binary")


def _quoted(text: Column) -> Column:
    """Return text as a JSON string."""
    return F.regexp_extract(F.to_json(F.struct(text.alias("t"))), r'(?s)^\{"t":(.*)\}$', 1)
