"""Tests of a server of several processes, and of several servers: all give the same answers, whichever is killed."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import httpx2
import pandas as pd
import psutil
import pytest

from caraway import Client, connectors, dataset, field, meta
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.server.test_secrets import Signed
from tests.tls import TLS
from tests.unit.compute.query import garden

# The tests share the broker with others, and so the topics of equal definitions; these pots are their own.
POT = 9_000_000
# Number of new connections that reach both readers, except once in a million times.
MANY = 20
# Interval of looks for commits that is longer than any test, so that servers learn of commits by notification only.
NEVER_S = 3600.0


@meta(owner="a@b.co")
@connectors.source(connectors.Webhook(name="workers").endpoint("visits"), disorder="1h", cdc="upsert")
@dataset(index=True)
class Visits:
    guest: str = field(key=True, erase_key=True)
    nights: int
    at: datetime = field(timestamp=True)


@pytest.fixture(scope="module")
def servers(
    kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Yield two servers with folders of their own: one of several processes, one of a single one."""
    folder = tmp_path_factory.mktemp("workers")
    # Both servers have the key file of one deployment.
    key_file = folder / "secret.key"

    def make(own: str, workers: int) -> ServerProcess:
        return ServerProcess(
            folder / own,
            kafka=kafka,
            postgres=module_postgres,
            workers=workers,
            poll_seconds=NEVER_S,
            key_file=key_file,
        )

    both = make("several", 2), make("single", 1)
    for server in both:
        server.start()
    yield both
    codes = [server.stop() for server in both]
    assert codes == [0, 0], [server.said() for server in both]


def processes(server: ServerProcess) -> dict[str, psutil.Process]:
    """Return the processes of a server of several: `writer`, and the readers by their numbers."""
    found = {}
    for child in psutil.Process(server.pid).children():
        # A process that has just ended has no command line.
        with suppress(psutil.NoSuchProcess):
            line = child.cmdline()
            if "caraway.apps.server.workers" in line:
                found[line[line.index("--reader") + 1] if "--reader" in line else "writer"] = child
    return found


def ask(server: ServerProcess, outputs: list[str], pot: int) -> httpx2.Response:
    """Send a query over a new connection, so that any of the readers may answer."""
    body = {"inputs": ["Tap.pot"], "outputs": outputs, "data": {"Tap.pot": [pot]}}
    return httpx2.post(f"{server.http.base_url}query", json=body, timeout=60, verify=TLS)


def species(server: ServerProcess, pot: int) -> object:
    answer = ask(server, ["State.species"], pot)
    assert answer.status_code == 200, answer.text
    return answer.json()["State.species"][0]


def wait_for(server: ServerProcess, pot: int, name: str) -> None:
    eventually(lambda: species(server, pot) == name, server.said)


def row(number: int, name: str, at_s: int = 0) -> dict[str, object]:
    return {"pot": POT + number, "species": name, "size": 1.0, "bought": int(time.time()) - 3600 + at_s}


def log(server: ServerProcess, *rows: dict[str, object]) -> None:
    answer = server.log("pots", list(rows))
    assert answer.json().get("accepted") == len(rows), answer.text


def level(server: ServerProcess) -> bool:
    """Return whether the index has reached the ends of its topics."""
    indexes: list[dict[str, Any]] = server.http.get("/status").json()["index"]["indexes"]
    return all(index["following"] and index["lag"] == 0 for index in indexes)


def eventually_answers(check: Callable[[], bool], server: ServerProcess) -> None:
    """Wait for an answer, through the moments in which a killed process takes its connections with it."""

    def holds() -> bool:
        try:
            return check()
        except httpx2.TransportError:
            return False

    eventually(holds, server.said)


@pytest.mark.timeout(600)
def test_answers_are_one_whoever_is_asked_and_whoever_is_killed(
    servers: tuple[ServerProcess, ServerProcess],
) -> None:
    several, single = servers

    # All readers know a commit when it is answered, and another server soon.
    several.commit(garden.graph())
    answers = [ask(several, ["State.species"], POT).status_code for _ in range(MANY)]
    assert answers == [200] * MANY
    eventually(lambda: ask(single, ["State.species"], POT).status_code == 200, single.said)

    # All readers show the same rows, and both servers show rows that came through either.
    for number, (taker, other) in enumerate(((several, single), (single, several))):
        log(taker, row(number, "oak"))
        for server in (taker, other):
            wait_for(server, POT + number, "oak")
            assert [species(server, POT + number) for _ in range(MANY)] == ["oak"] * MANY

    # One of the servers writes the rows of aggregates that jobs read.
    def writing() -> int:
        return sum("this server writes rows of aggregates" in server.log_file.read_text() for server in servers)

    eventually(writing)
    assert writing() == 1

    # Both readers took part, and the page has the metrics of all three processes.
    def all_counted() -> bool:
        page = several.http.get("/metrics").text
        wanted = [("extract_features", "1"), ("extract_features", "2"), ("sync", "writer"), ("log", "writer")]
        return all(
            f'caraway_request_counter_total{{code="200",target="{target}",worker="{worker}"}}' in page
            for target, worker in wanted
        )

    eventually(all_counted, lambda: several.http.get("/metrics").text)

    # The writer is killed: readers go on answering, and report that writes are impossible.
    writer = processes(several)["writer"]
    writer.suspend()
    log(single, row(0, "elm", at_s=1))
    eventually(lambda: species(single, POT) == "elm", single.said)
    assert {species(several, POT) for _ in range(MANY)} == {"oak"}
    writer.kill()
    while not several.health().is_success:
        assert species(several, POT) in {"oak", "elm"}
    eventually(lambda: level(several), several.said)
    assert [species(several, POT) for _ in range(MANY)] == ["elm"] * MANY
    log(several, row(0, "ash", at_s=2))
    for server in servers:
        wait_for(server, POT, "ash")


def test_secrets_and_erased_keys_are_known_to_all(servers: tuple[ServerProcess, ServerProcess]) -> None:
    several, single = servers
    with Client(str(several.settings.server.url)) as client:
        told = client.commit("private", [Visits], [Signed], incremental=True).json()["summary"]
        assert any("secret missing: featureset Signed, extractor sign" in line for line in told), told
    body = {"inputs": ["Signed.number"], "outputs": ["Signed.length"], "data": {"Signed.number": [1]}}

    def signed(server: ServerProcess) -> object:
        answer = httpx2.post(f"{server.http.base_url}query", json=body, timeout=60, verify=TLS)
        return answer.json()["Signed.length"] if answer.is_success else answer.status_code

    # When a change is answered all readers have it; the other server has it soon.
    for value, method in (("short", "POST"), ("rather longer", "PATCH")):
        changed = several.http.request(method, "/secret/signing-key", json={"value": value})
        assert changed.status_code == 200, changed.text
        assert [signed(several) for _ in range(MANY)] == [[1 + len(value)]] * MANY
        eventually(lambda value=value: signed(single) == [1 + len(value)], single.said)  # type: ignore[misc]
    assert single.http.patch("/secret/signing-key", json={"value": "x" * 9}).status_code == 200
    eventually(lambda: all(signed(several) == [10] for _ in range(MANY)), several.said)
    # A secret that a process of users' functions has had is in no answer and no log of any process.
    failing = {**body, "data": {"Signed.number": [13]}}
    for server in servers:
        assert "x" * 9 not in httpx2.post(f"{server.http.base_url}query", json=failing, timeout=60, verify=TLS).text
        assert "x" * 9 not in server.log_file.read_text()

    def nights(server: ServerProcess, guest: str) -> object:
        asked = {"keys": [{"guest": guest}], "fields": ["nights"]}
        answer = httpx2.post(f"{server.http.base_url}dataset/Visits/lookup", json=asked, timeout=60, verify=TLS)
        return answer.json()["data"]["nights"][0] if answer.is_success else answer.text

    rows = pd.DataFrame({"guest": ["ann", "bob", "eve"], "nights": [1, 2, 3], "at": ["2026-01-01T00:00:00Z"] * 3})
    with Client(str(several.settings.server.url)) as client:
        client.log("workers", "visits", rows)
        for server in servers:
            eventually(lambda server=server: nights(server, "eve") == 3, server.said)  # type: ignore[misc]
        # An erasure through a server of several processes hides the key in all of them at once.
        assert client.erase(Visits, pd.DataFrame({"guest": ["ann"]})).status_code == 200
        assert [nights(several, "ann") for _ in range(MANY)] == [None] * MANY
        eventually(lambda: nights(single, "ann") is None, single.said)
    # An erasure through the other server works as well.
    with Client(str(single.settings.server.url)) as client:
        assert client.erase(Visits, pd.DataFrame({"guest": ["bob"]})).status_code == 200
        assert nights(single, "bob") is None
    eventually(lambda: all(nights(several, "bob") is None for _ in range(MANY)), several.said)
    # A restarted reader knows of both erasures before it answers, and no other process has ended.
    killed = processes(several)["1"]
    killed.kill()
    eventually(lambda: processes(several).get("1", killed).pid != killed.pid, several.said)
    eventually_answers(lambda: level(several), several)

    def answered() -> bool:
        return all([nights(several, guest) for guest in ("ann", "bob", "eve")] == [None, None, 3] for _ in range(MANY))

    eventually_answers(answered, several)

    # Both indexes have removed the keys.
    def done() -> bool:
        found = several.http.get("/dataset/Visits/erasures").json()["erasures"]
        places = [{place["place"] for place in erasure["places"] if "index of" in place["place"]} for erasure in found]
        return (
            len(found) == 2
            and all(erasure["recorded_at"] for erasure in found)
            and all(map(len, places))
            and (min(map(len, places)) == len(servers))
        )

    eventually(done, lambda: several.http.get("/dataset/Visits/erasures").text)
