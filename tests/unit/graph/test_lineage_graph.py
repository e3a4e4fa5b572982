"""Tests of lineage: which columns a pipeline's columns come from, and the nodes and edges of a graph."""

from dataclasses import replace

import pytest

from caraway.dtypes.types import INT
from caraway.expr.nodes import Binary, BinaryOp, Ref
from caraway.graph import operators as ops
from caraway.graph.columns import Origins, column_origins
from caraway.graph.functions import PythonFunction
from caraway.graph.lineage_graph import Lineage, lineage_of
from caraway.graph.schemas import schema_of
from caraway.graph.specs import Graph
from tests.unit.compute.query import garden
from tests.unit.graph.building import join
from tests.unit.testing import shop

GRAPHS = {
    "garden": garden.graph(),
    "shop": Graph(
        datasets=tuple(d.to_spec() for d in shop.DATASETS), featuresets=tuple(f.to_spec() for f in shop.FEATURESETS)
    ),
}
SPECS = {spec.name: spec for spec in GRAPHS["garden"].datasets}
READINGS, POTS = ops.Input(dataset="Readings"), ops.Input(dataset="Pots")
FUNCTION = PythonFunction(name="f", source_code="", pickled=b"")
COMPUTED = ops.AssignFunction(of=READINGS, column="x", dtype=INT, function=FUNCTION)


def of(*names: str) -> Origins:
    return frozenset((name.partition(".")[0], name.partition(".")[2]) for name in names)


def assign(tree: ops.Operator, name: str, *reads: str) -> ops.Operator:
    first, *more = (Ref(name=name) for name in reads)
    node = Binary(op=BinaryOp.ADD, left=first, right=more[0]) if more else first
    return ops.Assign(of=tree, columns=(ops.AssignedColumn(name=name, dtype=INT, expr=node),))


@pytest.mark.parametrize("name", GRAPHS)
def test_there_are_origins_for_each_column_of_a_pipeline_and_no_others(name: str) -> None:
    specs = {spec.name: spec for spec in GRAPHS[name].datasets}
    pipelines = [pipeline for spec in specs.values() for pipeline in spec.pipelines]
    assert pipelines
    for pipeline in pipelines:
        found = column_origins(pipeline.operator, specs)
        assert found.keys() == schema_of(pipeline.operator, specs).columns.keys()
        for origins in found.values():
            assert all(column in {f.name for f in specs[dataset].fields} for dataset, column in origins or ())


@pytest.mark.parametrize(
    ("tree", "column", "origins"),
    [
        (READINGS, "moisture", of("Readings.moisture")),
        (assign(READINGS, "both", "pot", "moisture"), "both", of("Readings.pot", "Readings.moisture")),
        (assign(assign(READINGS, "a", "pot"), "b", "a", "moisture"), "b", of("Readings.pot", "Readings.moisture")),
        (assign(READINGS, "moisture", "pot"), "moisture", of("Readings.pot")),
        (ops.Rename(of=READINGS, pairs=(("moisture", "wet"), ("wet", "w"))), "w", of("Readings.moisture")),
        (ops.Rename(of=READINGS, pairs=(("at", "time"),)), "time", of("Readings.at")),
        (ops.Transform(of=READINGS, function=FUNCTION), "moisture", None),
        (ops.Transform(of=READINGS, function=FUNCTION), "at", of("Readings.at")),
        (ops.Transform(of=POTS, function=FUNCTION), "pot", of("Pots.pot")),
        (COMPUTED, "x", None),
        (replace(COMPUTED, traced=Ref(name="pot")), "x", of("Readings.pot")),
        (
            ops.Union(left=READINGS, right=assign(READINGS, "moisture", "pot")),
            "moisture",
            of("Readings.moisture", "Readings.pot"),
        ),
        (ops.Union(left=READINGS, right=ops.Transform(of=READINGS, function=FUNCTION)), "moisture", None),
        (ops.Changelog(of=POTS, column="gone", marks_inserts=False), "gone", of()),
        (ops.Changelog(of=POTS, column="gone", marks_inserts=False), "species", of("Pots.species")),
        (join(READINGS, "Pots", "pot", "species"), "species", of("Pots.species")),
    ],
)
def test_origins(tree: ops.Operator, column: str, origins: Origins) -> None:
    assert column_origins(tree, SPECS)[column] == origins


def test_a_dataset_that_is_missing_adds_nothing() -> None:
    assert column_origins(assign(ops.Input(dataset="Hidden"), "x", "y"), {}) == {"x": frozenset()}


def test_an_aggregate_has_the_origins_of_what_it_aggregates() -> None:
    (pipeline,) = SPECS["Moisture"].pipelines
    assert column_origins(pipeline.operator, SPECS) == {
        "pot": of("Readings.pot"),
        "mean": of("Readings.moisture"),
        "count": of(),
        "at": of("Readings.at"),
    }


def edges(lineage: Lineage) -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
    return {(edge.source, edge.target): edge.columns for edge in lineage.edges}


def test_the_lineage_of_the_garden() -> None:
    lineage = lineage_of(GRAPHS["garden"])
    found = edges(lineage)
    ids = [node.id for node in lineage.nodes]
    assert len(ids) == len(set(ids))
    assert found[("dataset:Readings", "pipeline:Moisture.aggregate")] == (
        ("pot", "pot"),
        ("moisture", "mean"),
        ("at", "at"),
    )
    assert ("pipeline:Moisture.aggregate", "dataset:Moisture") in found
    assert ("source:[Webhook: garden](endpoint=pots)", "dataset:Pots") in found
    (lookup,) = {
        target
        for source, target in found
        if source == "dataset:Pots" and found[source, target] == (("species", "State.species"),)
    }
    assert (lookup, "feature:State.species") in found
    assert {
        ("dataset:Rules", "extractor:State.advise"),
        ("extractor:State.advise", "feature:State.water"),
    } <= found.keys()
    owners = {node.id: node.owner for node in lineage.nodes}
    assert owners["feature:State.water"] == "a@b.co"


def test_edges_to_what_a_graph_lacks_are_left_out() -> None:
    graph = GRAPHS["garden"]
    part = replace(graph, datasets=tuple(spec for spec in graph.datasets if spec.name != "Readings"))
    found = lineage_of(part)
    ids = {node.id for node in found.nodes}
    assert "dataset:Readings" not in ids
    assert all({edge.source, edge.target} <= ids for edge in found.edges)
    assert ("pipeline:Moisture.aggregate", "dataset:Moisture") in edges(found)
