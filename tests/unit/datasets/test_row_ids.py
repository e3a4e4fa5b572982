"""Tests of `@source(id=...)`: pipelines take an event that comes again once, as behind `dedup`."""

# ruff: noqa: ANN001, ANN202 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from datetime import datetime
from typing import Any

import pandas as pd
import pytest

from caraway.connectors import Webhook, source
from caraway.datasets import Count, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.errors import DefinitionError
from caraway.lib import inputs
from caraway.testing import MockClient

__owner__ = "ada@example.com"
web = Webhook(name="web")
FOREVER = Continuous("forever")
PAID = {"disorder": "1d", "cdc": "append"}


def payments(**options: Any) -> Any:
    """Return a dataset of payments whose source stands above `@dataset`."""

    @source(web.endpoint("payments"), **{**PAID, **options})
    @dataset
    class Payments:
        number: str
        shop: str
        amount: int
        at: datetime

    return Payments


def payments_from_below() -> Any:
    """Return the same dataset with a second source, and both below `@dataset`."""

    @dataset
    @source(web.endpoint("payments"), disorder="1d", cdc="append", id=["shop", "number"])
    @source(web.endpoint("refunds"), disorder="1d", cdc="append", id=["shop", "number"])
    class Payments:
        number: str
        shop: str
        amount: int
        at: datetime

    return Payments


def totals(of: Any, *, by: list[str] | None = None, twice: bool = False) -> Any:
    """Return sums over payments; `by` puts a dedup first, `twice` counts each payment on both sides of a union."""

    @dataset(index=True)
    class Totals:
        shop: str = field(key=True)
        paid: int
        payments: int
        at: datetime

        @pipeline
        @inputs(of)
        def sums(cls, paid):
            rows = paid if by is None else paid.dedup(by=by)
            rows = rows + rows if twice else rows
            return rows.groupby("shop").aggregate(paid=Sum(of="amount", window=FOREVER), payments=Count(window=FOREVER))

    return Totals


def operator(of: Any) -> Any:
    return of.to_spec().pipelines[0].operator


@pytest.mark.parametrize("twice", [False, True])
def test_pipelines_begin_with_a_dedup_by_the_identity(twice: bool) -> None:
    wanted = operator(totals(payments(), by=["shop", "number"], twice=twice))
    assert operator(totals(payments(id=["shop", "number"]), twice=twice)) == wanted
    assert operator(totals(payments_from_below(), twice=twice)) == wanted
    one = operator(totals(payments(id="number"), twice=twice))
    assert one == operator(totals(payments(), by=["number"], twice=twice))
    assert one != operator(totals(payments(), twice=twice))


def test_an_event_that_comes_again_counts_once() -> None:
    rows = [("p1", "north", 3, "10:00"), ("p2", "north", 5, "10:01"), ("p1", "north", 3, "10:00")]
    frame = pd.DataFrame(rows, columns=["number", "shop", "amount", "at"])
    frame["at"] = pd.to_datetime("2024-05-01 " + frame["at"])
    found = {}
    for identity in (None, "number"):
        made = payments(id=identity)
        client = MockClient()
        client.commit("payments", datasets=[made, totals(made)])
        for _ in range(2):
            client.log("web", "payments", frame)
        answer, _ = client.lookup("Totals", pd.DataFrame({"shop": ["north"]}))
        found[identity] = answer[["paid", "payments"]].iloc[0].tolist()
        # The dataset itself has all that came.
        assert len(client.get_dataset_df("Payments")) == 6
    assert found == {None: [22, 6], "number": [8, 2]}


@pytest.mark.parametrize("name", ["at", "nothing"])
def test_an_identity_is_of_fields(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"Payments.*payments.*id names {name}; possible: number, shop, amount"):
        payments(id=["number", name])


@pytest.mark.parametrize(("first", "second"), [("number", None), (None, "number"), ("number", "shop")])
def test_all_sources_of_a_dataset_have_one_identity(first: str | None, second: str | None) -> None:
    made, more = payments(id=first), source(web.endpoint("refunds"), disorder="1d", cdc="append", id=second)
    with pytest.raises(DefinitionError, match=f"id is {second or 'none'}.*another source.*{first or 'none'}; all must"):
        more(made)
