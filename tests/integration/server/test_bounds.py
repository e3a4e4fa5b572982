"""Tests of the bounds on requests over real HTTP: bytes, values, levels, time, connections."""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import orjson
import psutil
import pyarrow as pa
import pytest

from tests.integration.server.server_process import ServerProcess, eventually
from tests.timeouts import scaled
from tests.unit.query import garden

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
# Bound on the wait of other callers. The machine may be shared, so nine of ten waits must be within it.
TIMEOUT_S = 0.25


def log_body(data: bytes) -> bytes:
    return b'{"webhook": "garden", "endpoint": "pots", "data": ' + data + b"}"


def dictionary(text: str, rows: int) -> bytes:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows), pa.array([text]))
    table = pa.table({"Tap.pot": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@contextmanager
def others_are_answered(server: ServerProcess) -> Iterator[list[float]]:
    """Send requests as another caller all the time; check that nine of ten answers come in time."""
    waits: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=str(server.http.base_url)) as other:
            while not stop.is_set():
                begun = time.perf_counter()
                assert other.get("/health").status_code == 200
                waits.append(time.perf_counter() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        stop.set()
        asking.join()
    assert waits
    assert sorted(waits)[int(len(waits) * 0.9)] < scaled(TIMEOUT_S), sorted(waits)[-10:]


@pytest.mark.parametrize(
    ("path", "body", "headers", "code"),
    [
        ("/log", gzip.compress(log_body(b"[" + b"{}," * 2_000_000 + b"{}]")), GZIP, 413),
        ("/log", gzip.compress(log_body(b"[" + b"{}," * 150_000 + b"{}]")), GZIP, 413),
        ("/log", log_body(b"[" + b"[],[]," * 5_000_000 + b"[]]"), JSON, 413),
        ("/log", log_body(orjson.dumps("[" + "{}," * 2_000_000 + "{}]")), JSON, 413),
        ("/query", b"[" + b"[],[]," * 5_000_000 + b"[]]", JSON, 413),
        ("/query", b'{"inputs":["Tap.pot"],"outputs":["State.pot"],"data":' + b"[" * 5_000 + b"]" * 5_000, JSON, 400),
        ("/dataset/Pots/lookup", b'{"keys": [' + b"{}," * 2_000_000 + b"{}]}", JSON, 413),
        ("/dataset/Pots/erase", b'{"erase_keys": [' + b"{}," * 2_000_000 + b"{}]}", JSON, 413),
        ("/secret/a", b"[" + b"1," * 5_000_000 + b"1]", JSON, 413),
        ("/query?outputs=State.pot", dictionary("x" * 1_000_000, 2_000), ARROW, 413),
    ],
)
def test_a_small_request_takes_little_memory_and_time(
    server: ServerProcess, path: str, body: bytes, headers: dict[str, str], code: int
) -> None:
    memory = psutil.Process(server.pid).memory_info
    before = memory().rss
    peak = before
    with others_are_answered(server) as waits:
        begun = time.perf_counter()
        answer = server.http.post(path, content=body, headers=headers)
        took = time.perf_counter() - begun
        peak = max(peak, memory().rss)
        eventually(lambda: len(waits) > 10)
    assert (answer.status_code, answer.json()["code"]) == (code, "too_large" if code == 413 else "invalid_input")
    assert took < scaled(20)
    assert peak - before < 300 * 1024 * 1024


def test_many_rows_are_taken_while_others_are_answered(server: ServerProcess) -> None:
    rows = [{"pot": 500 + n % 50, "species": "oak", "size": 1.5, "bought": 1_700_000_000} for n in range(50_000)]
    with others_are_answered(server):
        answer = server.http.post("/log", content=log_body(orjson.dumps(rows)), headers=JSON)
    assert answer.json()["accepted"] == 50_000


# The server refuses a request without these headers before it reads the rest.
KNOWN = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\n"


def connected(server: ServerProcess) -> socket.socket:
    port = server.settings.server.port
    assert port is not None
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def test_a_caller_is_answered_beside_two_thousand_idle_connections(server: ServerProcess) -> None:
    idle = []
    try:
        for _ in range(2_000):
            idle.append(connected(server))  # noqa: PERF401 (those that were made are closed in any case)
        with httpx.Client(base_url=str(server.http.base_url)) as other:
            begun = time.perf_counter()
            assert other.get("/health").status_code == 200
            assert time.perf_counter() - begun < scaled(TIMEOUT_S)
    finally:
        for connection in idle:
            connection.close()


def first_line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as answer:
        return answer.readline()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Content-Length: 100\r\n\r\nabc",
        b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Content-Length: 100000\r\n\r\nabc",
    ],
)
def test_a_body_that_is_cut_is_no_failure_of_the_server(server: ServerProcess, request_bytes: bytes) -> None:
    def counted(code: str) -> float:
        name = f'caraway_request_counter_total{{code="{code}",target="log"}}'
        lines = server.http.get("/metrics").text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)

    refused, failed = counted("400"), counted("500")
    with closing(connected(server)) as connection:
        connection.sendall(request_bytes)
    eventually(lambda: counted("400") == refused + 1, server.said)
    assert counted("500") == failed
    assert "Traceback" not in server.said()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Content-Length: 99999999999999999999999\r\n\r\n",
        b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/v1/query HTTP/1.1\r\n" + KNOWN + b"Content-Length: 2\r\nX-Caraway-Branch: \xff\xfe\r\n\r\n{}",
        b"POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Type: \xff\r\n\r\n{}",
        b"POST /api/v1/query HTTP/1.1\r\n" + KNOWN + b"Content-Length: 2\r\nContent-Encoding: \xff\r\n\r\n{}",
        b"GET /api/v1/branch/log?limit=%ff%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /api/v1/dataset/%ff%2e%2e/lookup HTTP/1.1\r\n" + KNOWN + b"Content-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_malformed_requests_are_refused(server: ServerProcess, request_bytes: bytes) -> None:
    with closing(connected(server)) as connection:
        connection.sendall(request_bytes)
        status = first_line(connection)
    assert status == b"" or status.split()[1].startswith(b"4"), status


def refusal(answer: httpx.Response) -> str:
    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert len(answer.content) < 20_000
    message: str = answer.json()["err_msg"]
    return message


LONG = "x" * 2_000_000


@pytest.mark.parametrize(
    "ask",
    [
        lambda server: server.query([LONG], [{"Tap.pot": 1}]),
        lambda server: server.query(["State.pot"], [{"Tap.pot": LONG}]),
        lambda server: server.query(["State.pot"], [{"Tap.pot": {LONG: LONG}}]),
        lambda server: server.query(["State.pot"], [{"Tap.pot": 1}], timestamps=[LONG]),
        lambda server: server.query(["State.pot"], [{"Tap.pot": 1}], timestamps=["9" * 5_000]),
        lambda server: server.query(["State.pot"], [{"Tap.pot": 1}], workflow=LONG),
        lambda server: server.log("pots", {LONG: 1}),
        lambda server: server.log("pots", {LONG: [1], "pot": [1, 2]}),
        lambda server: server.log("pots", [{"pot": LONG, "species": "a", "bought": LONG}]),
        lambda server: server.log(LONG, [{}]),
        lambda server: server.http.post("/log", json={"webhook": LONG, "endpoint": "pots", "data": []}),
        lambda server: server.http.post("/dataset/Pots/lookup", json={"keys": [{LONG: 1}]}),
        lambda server: server.http.post("/dataset/Pots/lookup", json={"keys": [{"pot": 1}], "fields": [LONG]}),
        lambda server: server.http.post("/dataset/Pots/erase", json={"erase_keys": [{LONG: 1}]}),
        lambda server: server.http.post("/branch/rollback", json={"commit_id": LONG}),
        lambda server: server.http.post("/init", json={"clone_from": LONG}, headers={"X-Caraway-Branch": "a"}),
    ],
)
def test_messages_do_not_repeat_what_was_sent(
    server: ServerProcess, ask: Callable[[ServerProcess], httpx.Response]
) -> None:
    assert LONG[:9_000] not in refusal(ask(server))


def test_other_fields_are_named_within_bounds(server: ServerProcess) -> None:
    row = {"pot": 1, "species": "a", "bought": 1} | {f"{LONG[:300_000]}{n}": 1 for n in range(5)}
    many = {"pot": 1, "species": "a", "bought": 1} | {f"f{n}": 1 for n in range(5_000)}
    for sent in (row, many):
        answer = server.log("pots", [sent])
        assert answer.status_code == 200
        assert len(answer.content) < 20_000


def test_workflows_label_few_series(server: ServerProcess) -> None:
    for number in range(200):
        label = f"{number}".rjust(100, "w")
        assert server.query(["State.pot"], [{"Tap.pot": 1}], workflow=label).status_code == 200
        server.query(["State.nothing"], [{"Tap.pot": 1}], workflow=f"{number}".rjust(100, "f"))
    page = server.http.get("/metrics").text
    assert 'workflow="other"' in page
    labels = {line.split('workflow="')[1].split('"')[0] for line in page.splitlines() if 'workflow="' in line}
    assert len(labels) <= 102
    assert "100" in refusal(server.query(["State.pot"], [{"Tap.pot": 1}], workflow="w" * 101))


def test_keys_that_no_index_can_have_are_refused(server: ServerProcess) -> None:
    long = "x" * 70_000
    rule = {"text": "daily", "water": 3, "since": "2020-01-01"}
    answer = server.log("rules", [{"species": long, **rule}, {"species": "maple", **rule}]).json()
    assert (answer["accepted"], answer["rejected"]) == (1, 1)
    (error,) = answer["errors"]
    assert (error["row"], error["field"]) == (0, "species")
    assert "70,006 bytes; at most 65,000 can be indexed" in error["message"]

    def refused() -> int:
        indexes = server.http.get("/status").json()["index"]["indexes"]
        return sum(index["refused"] for index in indexes if index["dataset"] == "Rules")

    def read(species: str) -> httpx.Response:
        return server.http.post("/dataset/Rules/lookup", json={"keys": [{"species": species}], "fields": ["text"]})

    eventually(lambda: read("maple").json() == {"found": [True], "data": {"text": ["daily"]}}, server.said)
    # The index left out no row that was accepted.
    assert refused() == 0
    assert "70,006 bytes" in refusal(read(long))


@pytest.mark.parametrize("name", ["../x", "a/../b", "/a", "a/", "a//b", ".hidden", "-rf", "a/.b", "x" * 201, "a b"])
def test_branches_have_names_that_stay_where_they_are_put(server: ServerProcess, name: str) -> None:
    assert "can't name a branch" in refusal(server.http.post("/init", json={}, headers={"X-Caraway-Branch": name}))


def test_text_and_floats_in_json_are_what_they_are_called(server: ServerProcess) -> None:
    answer = server.log("pots", [{"pot": 1, "species": 1.5, "size": None, "bought": 1}]).json()
    assert (answer["rejected"], answer["errors"][0]["field"]) == (1, "species")
    assert answer["errors"][0]["message"] == "expected str, found float 1.5"
    taken = server.log("pots", [{"pot": 91, "species": "oak", "size": "NaN", "bought": 1_600_000_000}])
    assert taken.json()["accepted"] == 1
    eventually(
        lambda: (
            server.query(["State.species", "State.size"], {"Tap.pot": [91]}).json()
            == {"State.species": ["oak"], "State.size": [None]}
        )
    )


@contextmanager
def bounded(kafka: str, postgres: str, folder: Path, **settings: object) -> Iterator[ServerProcess]:
    process = ServerProcess(folder, kafka=kafka, postgres=postgres, more=settings)
    process.start()
    try:
        process.commit(garden.graph())
        yield process
    finally:
        process.kill()
        process.http.close()


def test_a_caller_has_a_share(kafka: str, postgres: str, tmp_path: Path) -> None:
    # A slow machine must also be able to make more requests than these.
    settings = {"concurrency_per_token": 2, "requests_per_second_per_token": 5.0}
    with bounded(kafka, postgres, tmp_path / "server", **settings) as server:
        with ExitStack() as opened:

            def is_busy() -> bool:
                """Begin a request whose body never comes; return whether another request is refused."""
                # Such a request is refused itself if it comes while two others are under way, so there may be several.
                slow = opened.enter_context(closing(connected(server)))
                slow.sendall(b"POST /api/v1/log HTTP/1.1\r\n" + KNOWN + b"Content-Length: 100\r\n\r\n")
                answer = server.http.get("/branch/list")
                return answer.status_code == 429 and "server.concurrency_per_token" in answer.text

            eventually(is_busy, server.said)
            refused = server.http.get("/branch/list")
            assert (refused.json()["code"], refused.headers["retry-after"]) == ("busy", "1")
            assert server.health().status_code == 200

        def is_too_fast() -> bool:
            answer = server.http.get("/branch/list")
            return answer.status_code == 429 and "server.requests_per_second_per_token" in answer.text

        assert any(is_too_fast() for _ in range(200))
        eventually(lambda: server.http.get("/branch/list").status_code == 200, server.said)
