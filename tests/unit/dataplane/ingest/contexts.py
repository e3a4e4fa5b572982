"""Systems that nobody reads, and the context that a server gives to the reader of a source."""

from dataclasses import replace
from typing import Any

from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.sources.reader import SourceContext
from caraway.graph.connectors import CaptureConnector, KafkaConnector
from caraway.graph.plan.model import IngestPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import SourceSpec
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.systems import KafkaSystem, PostgresSystem

KAFKA = KafkaSystem(name="k", bootstrap_servers="b:1", security_protocol="PLAINTEXT", sasl_mechanism="PLAIN")
TOPIC = KafkaConnector(system=KAFKA, topic="t")
POSTGRES = PostgresSystem(name="pg", host="h", port=1, database="d", username="u", password="p")
CAPTURED = CaptureConnector(system=POSTGRES, table="t")


def ingest_of(dataset: DatasetSpec, source: SourceSpec) -> IngestPlan:
    """Return the plan of the only source of a dataset."""
    return plan_graph(Graph(datasets=(replace(dataset, sources=(source,)),))).ingests[0]


def context_of(plan: IngestPlan, **more: Any) -> SourceContext:
    """Return the context in which the source of a plan is read."""
    given: dict[str, Any] = {"name": "rows", "resolve": str, **more}
    return SourceContext(source=plan.source, dataset=plan.dataset, columns=Target(plan).columns, **given)
