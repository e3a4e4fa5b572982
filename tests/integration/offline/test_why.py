"""Explanations over a real server: the values of the mock client, from records with their places on topics."""

from datetime import timedelta
from typing import Any

import pytest

from caraway.client.arguments import gather
from caraway.compute.query.catalog import Catalog
from caraway.compute.why.explaining import bits
from caraway.compute.why.model import MAX_LISTED, Listed, Why
from tests.integration.offline.desk import Shop
from tests.integration.offline.shop import BEGIN
from tests.unit.compute.why.recomputing import recompute

LATER = BEGIN + timedelta(minutes=1500)


def rows_of(why: Why) -> list[Listed]:
    return [item for s in why.steps for lookup in s.lookups if lookup.parts for item in lookup.parts.items]


@pytest.mark.full(
    reason="a server with all its parts; unit/compute/why has the laws, tests/parity explains streamed values"
)
def test_the_parts_of_a_server(shop: Shop) -> None:
    """The server explains what the mock client does, and knows where each record is and when it came."""
    inputs = {"Buyer.user": 3}
    for feature in ("Buyer.per_year", "Buyer.total_1h"):
        found = shop.client.why(feature, inputs, LATER, limit=MAX_LISTED)
        expected = shop.mock.why(feature, inputs, LATER, limit=MAX_LISTED)
        assert bits(found.value) == bits(expected.value)
        assert found.check.same is True, str(found)
        assert [item.event_time for item in rows_of(found)] == [item.event_time for item in rows_of(expected)]
        for item in rows_of(found):
            # A row has its place on the topic of its pipeline, and that of the event from which it was made.
            assert item.ingested is not None
            assert item.position is not None
            assert item.position.topic.startswith("caraway.Spending.")
            assert item.source is not None
            assert item.source.position is not None
            assert item.source.position.topic.startswith("caraway.Purchases.")
            assert item.source.dataset == "Purchases"
            assert item.source.row is not None
            assert item.source.row["user"] == 3
            assert item.source.steps
    assert bits(recompute(found, Catalog("", gather(shop.datasets, shop.featuresets)))) == bits(found.value)
    # When this value could have been served, nothing of the history was known.
    then = shop.client.why("Buyer.n", inputs, LATER, as_known=True)
    assert (then.value, then.check.same) == (0, True)
    page = shop.client.why("Buyer.total_1h", inputs, LATER, offset=1, limit=2)
    assert rows_of(page) == rows_of(found)[1:3]
    assert page.check.same is True
    check_refusals(shop)


def check_refusals(shop: Shop) -> None:
    """Questions that can't be answered are refused before a process is started for them."""
    wrong: list[dict[str, Any]] = [
        {"feature": "Buyer.no", "inputs": {"Buyer.user": 3}},
        {"feature": "Buyer", "inputs": {"Buyer.user": 3}},
        {"feature": "Buyer.n", "inputs": {}},
        {"feature": "Buyer.n", "inputs": {"Buyer.user": "x"}},
        {"feature": "Buyer.n", "inputs": {"Buyer.user": 3}, "at": "never"},
        {"feature": "Buyer.n", "inputs": {"Buyer.user": 3}, "limit": MAX_LISTED + 1},
    ]
    for body in wrong:
        assert shop.http.post("/why", json=body).status_code in {400, 404}, body
    assert shop.http.get("/why", params={"request_id": "0"}).status_code == 404
