"""The plans of topics and jobs for tests of what runs jobs."""

from dataclasses import replace
from typing import Any

from caraway.graph.operators import Input
from caraway.graph.plan.model import JobMode, JobPlan, RecordSchema, TopicKind, TopicPlan

SCHEMA = RecordSchema(keys=(), columns=(), timestamp="at", fingerprint=1)
EVENTS = TopicPlan(dataset="Events", name="events", kind=TopicKind.EVENTS, schema=SCHEMA, disorder_us=0)


def topic(name: str, kind: TopicKind = TopicKind.EVENTS, schema: RecordSchema = SCHEMA, **more: Any) -> TopicPlan:
    """Return the plan of a topic, whose dataset has its name."""
    return replace(EVENTS, dataset=name, name=name, kind=kind, schema=schema, **more)


def job(job_id: str, *inputs: TopicPlan, **more: Any) -> JobPlan:
    """Return the plan of a job that reads some topics."""
    made = JobPlan(
        job_id=job_id,
        dataset="D",
        pipeline="p",
        operator=Input(dataset="D"),
        inputs=inputs,
        output=topic("out"),
        mode=JobMode.REAL_TIME,
        mode_reason="",
        horizon_us=0,
    )
    return replace(made, **more)
