"""`AsyncClient`: the same requests, answers and errors as `Client`, while other tasks go on."""

import asyncio
import json
from typing import Any

import httpx2
import pandas as pd
import pytest

from caraway.client import AsyncClient, Client
from caraway.client.http import AsyncConnection, Connection
from caraway.errors import InvalidInputError, RemoteError, UnavailableError

URL = "http://caraway.test:8400"
ASKED = pd.DataFrame({"Pot.pot": [1, 2]})


class Server:
    """Returns prepared answers to both clients, and keeps what they asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        headers = {name: request.headers.get(name) for name in ("x-caraway-branch", "authorization", "content-type")}
        self.asked.append((request.method, request.url.path, headers, json.loads(request.content)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        return httpx2.Response(status, json=body)

    def client(self) -> Client:
        connection = Connection(
            URL,
            "secret",
            transport=httpx2.MockTransport(self),
            clock=lambda: sum(self.pauses),
            sleep=self.pauses.append,
        )
        return Client(URL, branch="week", connection=connection)

    def async_client(self) -> AsyncClient:
        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        connection = AsyncConnection(
            URL, "secret", transport=httpx2.MockTransport(self), clock=lambda: sum(self.pauses), sleep=sleep
        )
        return AsyncClient(branch="week", connection=connection)


def test_queries_ask_and_answer_as_those_of_the_other_client() -> None:
    answer = {"Pot.wet": [0.5, None], "Pot.pot": [1, 2]}
    both, wanted = Server(answer), ["Pot"]
    frame = both.client().query(["Pot.pot"], wanted, ASKED, log=True, workflow="w", sampling_rate=0.5)
    rows = both.client().query_rows(["Pot.pot"], wanted, ASKED, timestamps=pd.Series([1, 2]))

    async def ask() -> tuple[pd.DataFrame, list[dict[str, Any]]]:
        async with both.async_client() as client:
            found = await client.query(["Pot.pot"], wanted, ASKED, log=True, workflow="w", sampling_rate=0.5)
            return found, await client.query_rows(["Pot.pot"], wanted, ASKED, timestamps=pd.Series([1, 2]))

    found, found_rows = asyncio.run(ask())
    pd.testing.assert_frame_equal(found, frame)
    assert found_rows == rows == [{"Pot.wet": 0.5, "Pot.pot": 1}, {"Pot.wet": None, "Pot.pot": 2}]
    assert both.asked[:2] == both.asked[2:]
    assert both.asked[0][2]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "trouble", [[httpx2.ConnectError("refused")], [(503, {"err_msg": "busy"})], [(429, {}), httpx2.ReadError("cut")]]
)
def test_a_log_is_sent_again_as_by_the_other_client(trouble: list[Any]) -> None:
    taken = {"accepted": 2, "rejected": 0}
    rows = pd.DataFrame({"pot": [1, 2]})
    one, other = Server(*trouble, taken), Server(*trouble, taken)
    expected = one.client().log("web", "pots", rows)
    found = asyncio.run(other.async_client().log("web", "pots", rows))
    assert repr(found) == repr(expected) == "LogResult(web/pots: 2 accepted, 0 rejected)"
    assert other.asked == one.asked
    assert len(other.asked) == len(trouble) + 1
    assert other.pauses == one.pauses


def test_errors_are_those_of_the_other_client() -> None:
    with pytest.raises(RemoteError, match="no such feature"):
        asyncio.run(Server((404, {"err_msg": "no such feature"})).async_client().query(["a.b"], ["a.c"], _frame("a.b")))
    with pytest.raises(InvalidInputError, match="sampling_rate"):
        asyncio.run(Server({}).async_client().query(["a.b"], ["a.c"], _frame("a.b"), sampling_rate=2))
    with pytest.raises(UnavailableError):
        asyncio.run(Server(httpx2.ConnectError("refused")).async_client().log("web", "pots", _frame("pot")))
    with pytest.raises(InvalidInputError, match="web/pots took 1 of 2 rows"):
        asyncio.run(Server({"accepted": 1, "rejected": 1}).async_client().log("web", "pots", _frame("pot")))


def test_a_hundred_queries_are_under_way_at_once() -> None:
    async def ask() -> int:
        waiting = asyncio.Barrier(100)

        async def answer(_: httpx2.Request) -> httpx2.Response:
            # Each answer waits for all other requests: a client that sends one after another never gets any.
            await waiting.wait()
            return httpx2.Response(200, json={"a.c": [1]})

        connection = AsyncConnection(URL, "", transport=httpx2.MockTransport(answer))
        async with AsyncClient(connection=connection) as client, asyncio.timeout(20):
            found = await asyncio.gather(*(client.query_rows(["a.b"], ["a.c"], _frame("a.b")) for _ in range(100)))
        return len(found)

    assert asyncio.run(ask()) == 100


def _frame(name: str) -> pd.DataFrame:
    return pd.DataFrame({name: [1]})
