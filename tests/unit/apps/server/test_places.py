"""The places of requests that take long: one token leaves some of them to others."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.shares import Places
from caraway.apps.server.app import App
from caraway.apps.server.handlers.context import MAX_WAITS
from caraway.apps.server.handlers.queries import INLINE_ROWS, MAX_UNDER_WAY, Given, Queries
from caraway.apps.server.handlers.waiting import WaitBody, wait
from caraway.apps.server.http.endpoints import Endpoint, Permission, Router
from caraway.apps.server.http.messages import HttpResponse, Request, json_response
from caraway.errors import BusyError, UnknownEntityError
from caraway.state.access import AccessList, TokenOwner, digest_of
from caraway.state.permissions import EVERYTHING, Caller, Mode
from tests.unit.apps.server.asking import HOST, Exchange, answered
from tests.unit.apps.server.test_access import NO_AUDIT

BODY = b'{"commit": true, "seconds": 10}'
TOKENS = [TokenOwner(Caller(account=name, token_id=name, grants=(EVERYTHING,)), None) for name in ("eve", "ada")]


class Plan:
    """A plan of a query that takes until the test ends it."""

    output_names = ()
    asks_others = False

    def __init__(self, *, runs_user_code: bool) -> None:
        self.runs_user_code = runs_user_code
        self.ended = threading.Event()

    def evaluate(self, data: object, at: object) -> dict[str, int]:
        assert self.ended.wait(30)
        return {}

    async def evaluate_async(self, data: object, at: object) -> dict[str, int]:
        assert await asyncio.to_thread(self.ended.wait, 30)
        return {}

    def check_size(self, batch: object) -> None:
        """Do nothing: the answer is empty."""

    def answer(self, batch: object) -> object:
        return batch


class Many:
    """An application with a handler, and the requests of a caller with many and of another one."""

    def __init__(self, handler: Any) -> None:
        access: Any = SimpleNamespace(
            list_now=lambda _: AccessList(1, {digest_of(o.caller.account): o for o in TOKENS})
        )
        gate = Gate(NO_AUDIT, access)
        gate.refresh()
        endpoint = Endpoint("POST", "/long", handler, Permission((Mode.READ_DATA,)))
        self.app = App(Router((endpoint,)), gate, sites=None)

    async def begin(self, token: str) -> "asyncio.Task[Exchange]":
        """Begin a request, and return after it has taken a place or was refused."""
        headers = {"host": HOST, "authorization": f"Bearer {token}", "content-type": "application/json"}
        task = asyncio.create_task(answered(self.app, "POST", "/long", BODY, headers))
        await asyncio.sleep(0)
        return task


async def refused(handler: Any, requests: int, end: Callable[[], object], status: int = 200) -> list[Exchange]:
    """Return the refusals of many requests of a caller, beside which another caller is answered after `end`."""
    many = Many(handler)
    tasks = [await many.begin("eve") for _ in range(requests)]
    refusals = [task.result() for task in tasks if task.done()]
    tasks = [task for task in tasks if not task.done()]
    tasks.append(await many.begin("ada"))
    end()
    assert [(await task).status for task in tasks] == [status] * len(tasks)
    # The places were given back.
    again = [await many.begin("eve") for _ in tasks[1:]]
    assert [(await task).status for task in again] == [status] * len(again)
    return refusals


@pytest.mark.parametrize(("rows", "runs_user_code"), [(INLINE_ROWS + 1, False), (1, True)])
def test_a_token_leaves_places_of_large_queries_to_others(rows: int, runs_user_code: bool) -> None:
    plan: Any = Plan(runs_user_code=runs_user_code)
    queries = Queries()

    async def handler(request: Request) -> HttpResponse:
        return json_response(await queries.answer(plan, Given([{}] * rows), None))

    refusals = asyncio.run(refused(handler, MAX_UNDER_WAY, plan.ended.set))
    assert [answer.json["code"] for answer in refusals] == ["busy"] * 16
    assert "48 large requests are under way already, 48 of them of this caller" in refusals[0].text


def deleted(branch: str) -> None:
    raise UnknownEntityError(f"there is no branch {branch!r}")


def test_a_token_leaves_places_of_waits_to_others() -> None:
    # The requests wait for a commit of the branch until the branch is deleted.
    branch = SimpleNamespace(name="main", head="b", serving="a")
    needed = SimpleNamespace(heads=SimpleNamespace(branches=(branch,)))
    graphs = SimpleNamespace(require_served_graph=lambda _: None, needed=needed)
    context: Any = SimpleNamespace(waits=Places(MAX_WAITS, "requests wait"), deployment=SimpleNamespace(graphs=graphs))

    async def handler(request: Request[WaitBody]) -> HttpResponse:
        return await wait(context, request)

    def end() -> None:
        graphs.require_served_graph = deleted

    refusals = asyncio.run(refused(handler, MAX_WAITS, end, 404))
    assert [answer.status for answer in refusals] == [429, 429]


def test_without_tokens_all_places_are_taken() -> None:
    places = Places(3, "requests wait")
    leaves = [places.enter() for _ in range(3)]
    with pytest.raises(BusyError, match=r"3 requests wait already.* one caller may take 3"):
        places.enter()
    leaves[0]()
    places.enter()
