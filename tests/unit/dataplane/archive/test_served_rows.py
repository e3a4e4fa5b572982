"""Tests of the archived rows of an erased key: all that were looked up by it, under any name of the key's feature."""

# ruff: noqa: ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment, arg-type"

from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from caraway import F, dataset, featureset, field, meta, pipeline
from caraway.client.arguments import build_graph
from caraway.connectors import Webhook, source
from caraway.dataplane.archive.served_rows import ErasedRows, rules_of
from caraway.dataplane.archive.served_table import rows_of
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.datasets import Count, Dataset, Sum
from caraway.dtypes import Continuous
from caraway.dtypes.types import STRING
from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import Column
from caraway.graph.specs import Graph
from caraway.lib import inputs
from tests.unit.compute.query import garden

MAC_KEYS = {"k": b"m" * 32}
TOPIC = "caraway.Pots.1"


def graph() -> Graph:
    """Return the garden, in which pots may be erased."""
    found = garden.graph()
    pots = next(spec for spec in found.datasets if spec.name == "Pots")
    fields = tuple(replace(field, erase_key=field.key) for field in pots.fields)
    return replace(found, datasets=tuple(replace(d, fields=fields) if d is pots else d for d in found.datasets))


def commits(commit: str) -> Graph:
    if commit != "c":
        raise UnknownEntityError("no such commit")
    return graph()


def record(inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], commit: str = "c") -> bytes:
    rows = len(next(iter(inputs.values())))
    head = {"query": "q", "served_us": 0, "branch": "main", "commit": commit, "workflow": "w", "at_us": 1}
    return orjson.dumps({"format": 1, **head, "rows": list(range(rows)), "inputs": inputs, "outputs": outputs})


def erased_rows(*pots: int) -> ErasedRows:
    erased = ErasedKeys(lambda: MAC_KEYS)
    rows = ErasedRows(erased, commits)
    key = Column(name="pot", dtype=next(f.dtype for f in graph().datasets[0].fields if f.key))
    erased.add(TOPIC, [erasure_of(TOPIC, (key,), [pot], "k", MAC_KEYS["k"]) for pot in pots])
    rows.watch("Pots", TOPIC)
    return rows


def test_the_rules_are_the_lookups_of_a_commit() -> None:
    rules = rules_of(graph())
    assert {rule.dataset for rule in rules} == {"Pots"}
    # `State.pot` is an alias of `Tap.pot`.
    assert any({"Tap.pot", "State.pot"} <= names for rule in rules for names in rule.features)
    assert rules_of(garden.graph()) == ()


def test_rows_of_the_key_are_found_by_their_inputs_and_outputs() -> None:
    rows = erased_rows(3)
    given = list(rows_of(record({"Tap.pot": [3, 4, "3", None, "x"]}, {"State.species": ["a"] * 5}), 0, 0))
    assert [rows.hides_row(row) for row in given] == [True, False, True, False, False]
    shown = list(rows_of(record({"Other.x": [1, 1]}, {"State.pot": [3, 4]}), 0, 0))
    assert [rows.hides_row(row) for row in shown] == [True, False]
    other = list(rows_of(record({"Tap.pot": [3]}, {"A.b": [1]}, commit="gone"), 0, 0))
    assert not rows.hides_row(other[0])
    assert not ErasedRows(ErasedKeys(dict), commits).hides_row(given[0])


@meta(owner="a@b.co")
@source(Webhook(name="shop").endpoint("payments"), disorder="1d", cdc="append")
@dataset
class Payments:
    person: str = field(erase_key=True)
    cents: int
    at: datetime


@meta(owner="a@b.co")
@dataset(index=True)
class Spent:
    person: str = field(key=True)
    cents: int
    at: datetime

    @pipeline
    @inputs(Payments)
    def add(cls, payments: Dataset):
        return payments.groupby("person").aggregate(cents=Sum(of="cents", window=Continuous("forever")))


@meta(owner="a@b.co")
@dataset(index=True)
class ByCents:
    cents: int = field(key=True)
    payments: int
    at: datetime

    @pipeline
    @inputs(Payments)
    def add(cls, payments: Dataset):
        return payments.groupby("cents").aggregate(payments=Count(window=Continuous("forever")))


@meta(owner="a@b.co")
@featureset
class Buyer:
    person: str
    cents: int = F(Spent.cents, default=0)
    alike: int = F(ByCents.payments, default=0)


def test_rows_are_found_that_were_looked_up_in_a_dataset_computed_from_the_erased_rows() -> None:
    made = build_graph([Payments, Spent, ByCents], [Buyer])
    assert [(rule.dataset, rule.features) for rule in rules_of(made)] == [
        ("Payments", (frozenset({"Buyer.person"}),)),
    ]
    erased = ErasedKeys(lambda: MAC_KEYS)
    rows = ErasedRows(erased, lambda _: made)
    person = Column(name="person", dtype=STRING)
    erased.add("caraway.Payments.1", [erasure_of("caraway.Payments.1", (person,), ["ann"], "k", MAC_KEYS["k"])])
    rows.watch("Payments", "caraway.Payments.1")
    given = list(rows_of(record({"Buyer.person": ["ann", "bob"]}, {"Buyer.cents": [3, 3]}), 0, 0))
    assert [rows.hides_row(row) for row in given] == [True, False]
