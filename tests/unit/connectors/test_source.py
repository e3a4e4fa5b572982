# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, call-arg"
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from caraway.connectors import Webhook, source
from caraway.datasets import dataset
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, SourceSpec

WEB = Webhook(name="web", retention="14d")
CLICKS = WEB.endpoint("clicks")


def test_an_endpoint_feeds_several_datasets() -> None:
    feed = source(CLICKS, "1d", "append", env=["prod"])
    for name in ("A", "B"):
        made = dataset(feed(type(name, (), {"__annotations__": {"at": datetime}})))
        assert made.to_spec().sources == (
            SourceSpec(
                connector=WebhookConnector(name="web", endpoint="clicks", retention_us=14 * 86_400_000_000),
                disorder_us=86_400_000_000,
                cdc=Cdc.APPEND,
                env=("prod",),
            ),
        )
    assert CLICKS.identifier() == "[Webhook: web](endpoint=clicks)"


def test_parameters_at_their_defaults_pass() -> None:
    source(CLICKS, "1d", "append", preproc=None, where=None, bounded=False, every=None)


@pytest.mark.parametrize(
    ("wrong", "error", "facts"),
    [
        (lambda: Webhook(name=""), DefinitionError, ["name"]),
        (lambda: Webhook(name="w", retention="7x"), DefinitionError, ["w", "retention", "x"]),
        (lambda: WEB.endpoint(""), DefinitionError, ["web", "endpoint"]),
        (lambda: source(WEB, "1d", "append"), DefinitionTypeError, ["web", ".endpoint"]),
        (lambda: source("web", "1d", "append"), DefinitionTypeError, ["str"]),
        (lambda: source(CLICKS, cdc="append"), TypeError, ["disorder"]),
        (lambda: source(CLICKS, disorder="1d"), TypeError, ["cdc"]),
        (lambda: source(CLICKS, "1x", "append"), DefinitionError, ["clicks", "disorder", "x"]),
        (lambda: source(CLICKS, "1d", "replace"), DefinitionError, ["clicks", "replace", "upsert"]),
        (lambda: source(CLICKS, "1d", "debezium"), DefinitionError, ["debezium", "yet"]),
        (lambda: source(CLICKS, "1d", "append", env="~"), DefinitionError, ["clicks", "env"]),
        (lambda: source(CLICKS, "1d", "append", preproc={"a": 1}), DefinitionError, ["preproc", "yet"]),
        (lambda: source(CLICKS, "1d", "append", where=len), DefinitionError, ["where", "yet"]),
        (lambda: source(CLICKS, "1d", "append", sample=0.5), DefinitionError, ["sample", "yet"]),
        (lambda: source(CLICKS, "1d", "append", schema={}), DefinitionTypeError, ["schema"]),
        (lambda: source(CLICKS, "1d", "append")(3), DefinitionTypeError, ["int"]),
    ],
)
def test_what_is_refused(wrong: Callable[[], Any], error: type[Exception], facts: list[str]) -> None:
    with pytest.raises(error) as caught:
        wrong()
    assert all(fact in str(caught.value) for fact in facts), str(caught.value)
