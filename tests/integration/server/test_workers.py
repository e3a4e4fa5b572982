"""A server of several processes, and several servers: whoever is asked, and whoever is killed, the answers are one."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from caraway.graph.specs import Graph
from tests.integration.server.server_process import ServerProcess, eventually
from tests.unit.query import garden

# The broker is that of other tests too, and so are the topics of equal definitions.
POT = 9_000_000
# So many new connections reach both readers, but for once in a million times.
MANY = 20


@pytest.fixture
def servers(kafka: str, postgres: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers with folders of their own: one of several processes, one of a single one."""
    both = (
        ServerProcess(tmp_path / "several", kafka=kafka, postgres=postgres, workers=2),
        ServerProcess(tmp_path / "single", kafka=kafka, postgres=postgres),
    )
    for server in both:
        server.start()
    yield both
    codes = [server.stop() for server in both]
    assert codes == [0, 0], [server.said() for server in both]


def processes(server: ServerProcess) -> dict[str, psutil.Process]:
    """Return the processes of a server of several: `writer`, and the readers by their numbers."""
    found = {}
    for child in psutil.Process(server.pid).children():
        # One that has just ended has none.
        with suppress(psutil.NoSuchProcess):
            line = child.cmdline()
            if "caraway.server.workers" in line:
                found[line[line.index("--reader") + 1] if "--reader" in line else "writer"] = child
    return found


def ask(server: ServerProcess, outputs: list[str], pot: int) -> httpx.Response:
    """Ask over a new connection, so that any of the readers may answer."""
    body = {"inputs": ["Tap.pot"], "outputs": outputs, "data": {"Tap.pot": [pot]}}
    return httpx.post(f"{server.http.base_url}query", json=body, timeout=60)


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
    """Tell whether the index is where its topics end."""
    indexes: list[dict[str, Any]] = server.http.get("/status").json()["index"]["indexes"]
    return all(index["following"] and index["lag"] == 0 for index in indexes)


def eventually_answers(check: Callable[[], bool], server: ServerProcess) -> None:
    """Wait for an answer, through the moments in which a process that was killed takes its connections with it."""

    def holds() -> bool:
        try:
            return check()
        except httpx.TransportError:
            return False

    eventually(holds, server.said)


@pytest.mark.timeout(600)
def test_answers_are_one_whoever_is_asked_and_whoever_is_killed(
    servers: tuple[ServerProcess, ServerProcess],
) -> None:
    several, single = servers

    # A commit is known to all readers when it is answered, and to another server soon.
    several.commit(garden.graph())
    answers = [ask(several, ["State.species"], POT).status_code for _ in range(MANY)]
    assert answers == [200] * MANY
    eventually(lambda: ask(single, ["State.species"], POT).status_code == 200, single.said)

    # What one reader shows, all show; rows that came through either server show in both.
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

    # Both readers took part, and the page has the figures of all three processes.
    def all_counted() -> bool:
        page = several.http.get("/metrics").text
        wanted = [("extract_features", "1"), ("extract_features", "2"), ("sync", "writer"), ("log", "writer")]
        return all(
            f'caraway_request_counter_total{{code="200",target="{target}",worker="{worker}"}}' in page
            for target, worker in wanted
        )

    eventually(all_counted, lambda: several.http.get("/metrics").text)

    # A reader that is killed is started again; the other one answers meanwhile.
    killed = processes(several)["1"]
    killed.kill()
    eventually_answers(lambda: species(several, POT) == "oak", several)
    eventually(lambda: processes(several).get("1", killed).pid != killed.pid, several.said)

    # The writer is killed: readers go on answering, and say that nothing can be written.
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

    # A branch that is made by one server is known to its readers at once, and to the other server soon.
    made = several.http.post("/init", json={"clone_from": "main"}, headers={"X-Caraway-Branch": "twig"})
    assert made.status_code == 200, made.text
    headers = {"X-Caraway-Branch": "twig"}
    body = {"inputs": ["Tap.pot"], "outputs": ["State.species"], "data": {"Tap.pot": [POT]}}
    for _ in range(MANY):
        found = httpx.post(f"{several.http.base_url}query", json=body, headers=headers, timeout=60)
        assert found.json() == {"State.species": ["ash"]}
    eventually(lambda: single.http.post("/query", json=body, headers=headers).status_code == 200, single.said)


def test_what_cannot_start_says_why_and_ends(kafka: str, postgres: str, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres)
    server.start()
    second = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, workers=2)
    second.log_file = tmp_path / "second.log"
    second.launch()
    assert second.wait() == 1
    assert "is in use by another process" in second.said()
    second.http.close()
    server.commit(Graph())
    assert server.stop() == 0, server.said()
