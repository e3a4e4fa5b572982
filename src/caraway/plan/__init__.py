"""The physical plan of a graph: the topics, jobs and indexes that it needs."""

from caraway.plan.model import (
    Column,
    GraphPlan,
    IndexKind,
    IndexPlan,
    IngestPlan,
    JobMode,
    JobPlan,
    RecordSchema,
    TopicKind,
    TopicPlan,
)
from caraway.plan.planner import plan_graph

__all__ = [
    "Column",
    "GraphPlan",
    "IndexKind",
    "IndexPlan",
    "IngestPlan",
    "JobMode",
    "JobPlan",
    "RecordSchema",
    "TopicKind",
    "TopicPlan",
    "plan_graph",
]
