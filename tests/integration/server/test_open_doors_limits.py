"""Tests that small requests and definitions can't stop a server or fill its memory (docs/operate/security.md)."""

import gzip
import hashlib
import hmac
import socket
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any, List

import httpx2
import orjson
import pytest

from caraway import F, connectors, dataset, featureset, field, meta
from caraway.dtypes import regex
from caraway.expr import col, lit, repeat
from caraway.graph.pb.caraway.v1 import expressions_pb2 as pb
from caraway.graph.pb.caraway.v1 import graph_pb2
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.lib import expect_column_values_to_match_json_schema, expect_column_values_to_match_regex, expectations
from tests.integration.server.attacks import MB, MEMORY, held, timed, unharmed
from tests.integration.server.server_process import ServerProcess
from tests.tls import TLS

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
PROTOBUF = {"Content-Type": "application/octet-stream"}


def form(server: ServerProcess, path: str, body: bytes, **headers: str) -> httpx2.Response:
    """Send a form to the console; each has a connection of its own, because the server closes it if it is too large."""
    address = f"{server.settings.server.url}/console/{path}"
    return httpx2.post(
        address, content=body, headers={**FORM, **headers}, timeout=300, follow_redirects=False, verify=TLS
    )


def test_a_form_of_a_stranger_is_bounded_before_it_is_read(server: ServerProcess) -> None:
    form(server, "sign-in", b"token=x")
    flood = b"a=&" * 10_000_000
    packed, plain = gzip.compress(flood, 9), flood[: 16 * 1024 - 1]
    for path in ("sign-in", "sign-out"):
        with unharmed(server):
            refused = timed(server, partial(form, server, path, packed, **{"Content-Encoding": "gzip"}))
            assert refused.status_code == 413
            assert "16,384 bytes" in refused.text
            small = gzip.compress(b"token=x")
            refused = timed(server, partial(form, server, path, small, **{"Content-Encoding": "gzip"}))
            assert refused.status_code == 400
            assert "Content-Encoding" in refused.text
            assert timed(server, partial(form, server, path, flood[: 20 * MB])).status_code == 413
            refused = timed(server, partial(form, server, path, plain))
            assert refused.status_code == 400
            assert "fields" in refused.text


def test_a_cookie_of_a_stranger_is_read_in_linear_time(server: ServerProcess) -> None:
    cookies = ('caraway_session="' + "\\" * 60_000 + '"', "a=b;" * 15_000, 'caraway_session="' + "\\073" * 15_000 + '"')
    form(server, "sign-out", b"code=x")
    with unharmed(server):
        for cookie in cookies:
            assert timed(server, partial(form, server, "sign-out", b"code=x", Cookie=cookie)).status_code == 403


def test_an_address_with_many_parameters_is_refused(server: ServerProcess) -> None:
    url = f"{server.settings.server.url}/console/catalog?" + "a=&" * 8_000
    with unharmed(server):
        assert timed(server, lambda: httpx2.get(url, timeout=300, verify=TLS)).status_code == 400


@meta(owner="a@b.co")
@connectors.source(connectors.Webhook(name="garden").endpoint("parcels"), disorder="1h", cdc="append")
@dataset
class Parcels:
    label: str
    at: datetime = field(timestamp=True)


def test_forms_that_do_not_arrive_take_no_memory_from_others(own_server: Callable[..., ServerProcess]) -> None:
    # With this setting, all large requests together may hold 48 MiB, which is less than is announced here.
    server = own_server(cold=True, more={"requests_memory_mb": 64})
    # Servers with equal definitions share the topics of one Kafka. With a dataset that other tests log to, the new
    # server would read their rows meanwhile, and the memory for these would be counted here.
    server.commit(Graph(datasets=(Parcels.to_spec(),)))
    head = b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    rows = [{"label": "x" * 800_000, "at": 1_700_000_000}]
    before = held(server)
    with ExitStack() as stack:
        for length in (16_000, 65_000) * 800:
            port = server.settings.server.port
            waiting = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            waiting.sendall(head + b"Sec-Fetch-Site: same-origin\r\nContent-Length: %d\r\n\r\na=" % length)
        assert httpx2.get(f"{server.http.base_url}health", timeout=300, verify=TLS).status_code == 200
        # Each connection takes 18 KiB by itself, at the latest while others are answered.
        with unharmed(server, before=before, memory=MEMORY + 1600 * 20 * 1024) as healthy:
            assert healthy().status_code == 200
            answer = server.log("parcels", rows)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1), answer.text


@pytest.mark.parametrize(("path", "field"), [("query", "rows"), ("why", "inputs"), ("replay", "row")])
def test_json_in_a_form_has_the_bounds_of_the_api(server: ServerProcess, path: str, field: str) -> None:
    code = hmac.digest(b"", b"caraway console form", hashlib.sha256).hex()
    start = f"code={code}&outputs=State.species&feature=State.species&name=0-0&{field}=".encode()
    form(server, path, start + b"[]")
    lists = b"[[],[]," + b"[],[]," * 1_600_000 + b"[]]"
    with unharmed(server):
        packed = gzip.compress(start + lists, 9)
        answer = timed(server, lambda: form(server, path, packed, **{"Content-Encoding": "gzip"}))
        assert answer.status_code == 400
        assert "Content-Encoding" in answer.text
        answer = timed(server, lambda: form(server, path, start + lists))
        assert answer.status_code == 413
        assert "262,144 bytes" in answer.text
        # The most that fits into a form, and the deepest.
        answer = timed(server, lambda: form(server, path, (start + lists)[:250_000] + b"]"))
        assert answer.status_code in {400, 404, 422}
        answer = timed(server, lambda: form(server, path, start + b"[" * 100_000 + b"]" * 100_000))
        assert answer.status_code in {400, 404, 422}


@meta(owner="a@b.co")
@connectors.source(
    connectors.Webhook(name="doors").endpoint("doors"),
    disorder="1h",
    cdc="append",
    where=connectors.eval(col("pot") + lit(1) > lit(0), schema={"pot": int}),
)
@dataset
class Doors:
    pot: int
    at: datetime = field(timestamp=True)


def bomb(nodes: list[pb.Node]) -> bytes:
    """Return a commit whose source's filter is the given expression."""
    commit = graph_pb2.CommitRequest()
    commit.ParseFromString(encode_commit(CommitRequest(message="", graph=Graph(datasets=(Doors.to_spec(),)))))
    where = commit.graph.datasets[0].sources[0].where.expr
    del where.nodes[:]
    where.nodes.extend(nodes)
    return commit.SerializeToString()


def doubled(op: str, levels: int) -> list[pb.Node]:
    """Return an expression each of whose nodes is both operands of the next one."""
    sums = [pb.Node(binary=pb.Node.Binary(op=op, left=place, right=place)) for place in range(levels)]
    return [pb.Node(ref="pot"), *sums]


BOMBS = {
    "shared": bomb(doubled("+", 18)),
    "shared by texts": bomb(
        [
            pb.Node(ref="pot"),
            *(
                pb.Node(string_call=pb.Node.StringCall(function="concat", operand=place, args=[place]))
                for place in range(18)
            ),
        ]
    ),
    "deep": bomb([pb.Node(ref="pot"), *(pb.Node(is_null=place) for place in range(100_000))]),
    "many": bomb([pb.Node(ref="pot") for _ in range(200_000)]),
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("path", ["commit", "commit?preview=true", "source/try?name=Doors"])
def test_a_small_definition_cannot_become_a_large_one(server: ServerProcess, path: str, kind: str) -> None:
    server.http.post("/commit?preview=true", content=bomb([pb.Node(ref="pot")]), headers=PROTOBUF)
    with unharmed(server):
        answer = timed(server, lambda: server.http.post(f"/{path}", content=BOMBS[kind], headers=PROTOBUF))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input"), answer.text
    assert "damaged expression" in answer.text or "expression has" in answer.text


BACKTRACKING = "^(a+)+$"


@meta(owner="a@b.co")
@connectors.source(connectors.Webhook(name="garden").endpoint("patterns"), disorder="1h", cdc="append")
@dataset
class Patterns:
    name: str
    code: regex(BACKTRACKING)  # type: ignore[valid-type]
    document: str
    at: datetime = field(timestamp=True)

    @expectations(strict=True)
    def sane(cls) -> list[Any]:
        return [
            expect_column_values_to_match_regex(str(cls.name), BACKTRACKING),
            expect_column_values_to_match_json_schema(str(cls.document), {"type": "string", "pattern": BACKTRACKING}),
        ]


@meta(owner="a@b.co")
@featureset
class Growing:
    count: int
    text: str
    many: List[int] = F(repeat(0, col("count")))
    longer: str = F(col("text").str.concat(col("text")).str.concat(col("text")))


@pytest.fixture
def defined(own_server: Callable[..., ServerProcess]) -> ServerProcess:
    """Return a server with definitions that would take long, or much memory, for some values."""
    server = own_server(cold=True)
    server.commit(Graph(datasets=(Patterns.to_spec(),), featuresets=(Growing.to_spec(),)))
    return server


def test_no_value_takes_exponential_time_or_grows_without_bound(defined: ServerProcess) -> None:
    good = {"name": "aa", "code": "aa", "document": '"aa"', "at": 1_700_000_000}
    hostile = "a" * 40 + "!"
    assert defined.log("patterns", [good]).json()["accepted"] == 1
    for name, value in (
        ("name", hostile),
        ("code", hostile),
        ("document", f'"{hostile}"'),
        ("name", "a" * 60_000 + "!"),
    ):
        with unharmed(defined):
            answer = timed(defined, partial(defined.log, "patterns", [{**good, name: value}]))
        assert (answer.status_code, answer.json()["rejected"]) == (422, 1), answer.text

    def grown(output: str, count: int, text: str, rows: int) -> httpx2.Response:
        data = [{"Growing.count": count, "Growing.text": text}] * rows
        return defined.query([output], data, ("Growing.count", "Growing.text"))

    # Few rows are computed in plain Python, many in polars.
    for rows in (1, 100):
        assert grown("Growing.many", 3, "x", rows).json() == {"Growing.many": [[0, 0, 0]] * rows}
        assert grown("Growing.longer", 3, "x", rows).json() == {"Growing.longer": ["xxx"] * rows}
        with unharmed(defined):
            answer = timed(defined, partial(grown, "Growing.many", 10**9, "x", rows))
        assert answer.status_code in {400, 422}
        assert "at most 10,000" in answer.text
    with unharmed(defined):
        answer = timed(defined, lambda: grown("Growing.longer", 1, "x" * 400_000, 1))
    assert "at most 1,000,000" in answer.text


@pytest.mark.parametrize(
    ("pattern", "fact"), [("(a)\\1", "back-references"), ("(?=a)b", "look-around"), ("(?:a{9}){900}", "1,000")]
)
@pytest.mark.parametrize("of_type", [True, False])
def test_a_pattern_that_is_not_linear_is_refused_by_the_server(
    server: ServerProcess, pattern: str, fact: str, *, of_type: bool
) -> None:
    commit = graph_pb2.CommitRequest()
    commit.ParseFromString(encode_commit(CommitRequest(message="", graph=Graph(datasets=(Patterns.to_spec(),)))))
    found = commit.graph.datasets[0]
    if of_type:
        next(one for one in found.fields if one.name == "code").dtype.regex = pattern
    else:
        found.expectations.expectations[0].arguments = orjson.dumps({"column": "name", "regex": pattern}).decode()
    answer = server.http.post("/commit?preview=true", content=commit.SerializeToString(), headers=PROTOBUF)
    assert answer.status_code == 400
    assert fact in answer.text
