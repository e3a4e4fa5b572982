"""Answers of reads that would be many times as large as what was asked: they are refused before they are made."""

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from caraway.apps.server.handlers import reads
from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.handlers.queries import MAX_CELLS, Queries
from caraway.apps.server.handlers.reads import ArrowParameters, ExplainBody, LookupBody, QueryBody
from caraway.apps.server.http.messages import HttpResponse, Request
from caraway.errors import TooLargeError
from tests.unit.apps.server.asking import Headers
from tests.unit.compute.query import garden
from tests.unit.compute.query.garden import DictReader

LONG = "x" * 800_000
QUERY = {"inputs": ["Tap.pot"], "outputs": ["State.species"]}
Ask = Callable[[int], Coroutine[Any, Any, HttpResponse]]


def context() -> Any:
    row = {"pot": 1, "species": LONG, "size": 1.0, "bought": 0}
    queries = garden.engine(DictReader({("Pots", (1,)): [(0, row)]}))
    served = SimpleNamespace(queries=queries, version="1")
    return SimpleNamespace(limits=SimpleNamespace(seen=lambda _: served), queries=Queries(), keep=None)


def request(body: dict[str, object], form: Any, **headers: str) -> Request[Any, Any]:
    return Request(
        "POST", "/", "", Headers(**headers), orjson.dumps(body), body_form=form, parameters_form=ArrowParameters
    )


def lookup(count: int, **more: object) -> Coroutine[Any, Any, HttpResponse]:
    return reads.lookup(context(), request({"keys": [{"pot": 1}] * count, **more}, LookupBody), "Pots")


def lookup_at(count: int) -> Coroutine[Any, Any, HttpResponse]:
    return lookup(count, fields=["species"], timestamps=[1] * count)


def query(count: int) -> Coroutine[Any, Any, HttpResponse]:
    return reads.query(context(), request({**QUERY, "data": {"Tap.pot": [1] * count}}, QueryBody))


def query_arrow(count: int) -> Coroutine[Any, Any, HttpResponse]:
    return reads.query(context(), request({**QUERY, "data": {"Tap.pot": [1] * count}}, QueryBody, accept=ARROW))


def explain(count: int) -> Coroutine[Any, Any, HttpResponse]:
    body = {**QUERY, "data": {"Tap.pot": [1] * count}, "runs": 1}
    return reads.explain_query(context(), request(body, ExplainBody))


# Few rows are answered in the event loop, and many in a thread.
@pytest.mark.parametrize("count", [100, 2_000])
@pytest.mark.parametrize("ask", [lookup, lookup_at, query, query_arrow, explain])
def test_one_long_text_in_many_rows_is_refused_before_it_takes_memory(ask: Ask, count: int) -> None:
    asyncio.run(ask(2))
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="may have 64 MiB"):
            asyncio.run(ask(count))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 1024 * 1024


def test_a_lookup_without_fields_counts_all_of_them() -> None:
    with pytest.raises(TooLargeError, match=f"an answer may have {MAX_CELLS:,} values, 100,000 rows of 14 columns"):
        asyncio.run(_wide(100_000))


async def _wide(count: int) -> HttpResponse:
    made = context()
    catalog = SimpleNamespace(dataset=lambda _: SimpleNamespace(fields=range(14)))
    queries = SimpleNamespace(asks_others=False, catalog=catalog, lookup=lambda *_: ([], {}))
    made.limits = SimpleNamespace(seen=lambda _: SimpleNamespace(queries=queries))
    return await reads.lookup(made, request({"keys": [{"pot": 1}] * count}, LookupBody), "Pots")
