"""`MockClient.why`: erased keys, versions, refusals, and what notebooks show."""

# mypy: disable-error-code="attr-defined, arg-type"

from datetime import UTC, datetime, timedelta
from typing import Optional

import pandas as pd
import pytest
from msgspec.structs import replace

from caraway.compute.why.model import Source
from caraway.compute.why.showing import as_html
from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field
from caraway.errors import InvalidInputError, UnknownFeatureError
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.testing import MockClient

__owner__ = "why@example.com"

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
web = Webhook(name="web")


@source(web.endpoint("Prices"), disorder="14d", cdc="upsert")
@dataset(index=True)
class Prices:
    product: str = field(key=True, erase_key=True)
    price: float
    at: datetime


@featureset
class Product:
    product: str
    price: Optional[float] = F(Prices.price)


@pytest.fixture
def client() -> MockClient:
    made = MockClient()
    made.commit("prices", [Prices], [Product])
    frame = pd.DataFrame(
        {
            "product": ["<b>"] * 3,
            "price": [1.5, float("nan"), float("inf")],
            "at": [BEGIN + timedelta(hours=hours) for hours in range(3)],
        }
    )
    made.log("web", "Prices", frame.iloc[[0, 2]])
    return made


def test_a_version_and_those_beside_it(client: MockClient) -> None:
    why = client.why(Product.price, {Product.product: "<b>"}, BEGIN + timedelta(minutes=90))
    (lookup,) = why.steps[0].lookups
    assert (why.value, why.check.same, lookup.found) == (1.5, True, True)
    assert lookup.met is not None
    assert lookup.met.row == {"product": "<b>", "price": 1.5, "at": "2024-05-01T00:00:00Z"}
    assert lookup.met.ends == "2024-05-01T02:00:00Z"
    assert lookup.before is None
    assert lookup.after is not None
    assert lookup.after.row is not None
    # Values that JSON lacks are words.
    assert lookup.after.row["price"] == "Infinity"
    later = client.why("Product.price", {"Product.product": "<b>"}, BEGIN + timedelta(hours=2))
    assert (later.value, later.check.same) == ("Infinity", True)
    before = client.why("Product.price", {"Product.product": "<b>"}, BEGIN - timedelta(hours=2))
    assert (before.value, before.steps[0].lookups[0].why) == (None, "the key has no version yet")


def test_an_erased_key(client: MockClient) -> None:
    client.erase("Prices", [{"product": "<b>"}])
    why = client.why("Product.price", {"Product.product": "<b>"})
    (lookup,) = why.steps[0].lookups
    assert (why.value, lookup.met, lookup.found) == (None, None, False)
    assert "erased" in lookup.why


def test_the_mark_of_a_record_is_no_part_of_the_text(client: MockClient) -> None:
    why = client.why(Product.price, {Product.product: "<b>"}, BEGIN + timedelta(minutes=90))
    (lookup,) = why.steps[0].lookups
    assert lookup.met is not None
    marked = replace(lookup.met, source=Source(dataset="Prices", mark="caraway-request=900,901,902:Prices:x"))
    step = replace(why.steps[0], lookups=(replace(lookup, met=marked),))
    shown = str(replace(why, steps=(step,)))
    assert ("made from Prices" in shown, "900" in shown) == (True, False)


def test_html_has_no_markup_of_the_data(client: MockClient) -> None:
    shown = as_html(client.why("Product.price", {"Product.product": "<b>"}))
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "<script" not in shown
    assert "<details" in shown


def test_refusals(client: MockClient) -> None:
    given = {"Product.product": "<b>"}
    with pytest.raises(UnknownFeatureError):
        client.why("Product.no", given)
    with pytest.raises(InvalidInputError, match="one feature"):
        client.why("Product", given)
    with pytest.raises(InvalidInputError, match="limit"):
        client.why("Product.price", given, limit=1_001)
    with pytest.raises(InvalidInputError, match="at"):
        client.why("Product.price", given, "never")
    with pytest.raises(InvalidInputError, match="as_known"):
        client.why("Product.price", given, as_known=True)
