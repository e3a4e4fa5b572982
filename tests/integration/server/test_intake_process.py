"""Large log requests, which another process takes: the same outcome, and each row once if that process is killed."""

import concurrent.futures
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import msgspec
import pytest

from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from tests.integration.server.server_process import TIMEOUT_S, ServerProcess, end_of, eventually, records
from tests.integration.server.test_repeats import pots_on, readings
from tests.timeouts import deadline_in
from tests.unit.compute.query import garden

ROWS = 1_000


def intake_of(server: ServerProcess) -> int | None:
    """Return the process id of a server's intake process, None if it has none."""
    for folder in Path("/proc").iterdir():
        try:
            if (
                not folder.name.isdigit()
                or b"caraway.dataplane.ingest.intake_main" not in (folder / "cmdline").read_bytes()
            ):
                continue
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == server.pid:
            return int(folder.name)
    return None


def marked(marker: str, count: int = ROWS) -> list[dict[str, object]]:
    return readings(count, **{marker: 1})


def counted(kafka: str, topic: str) -> Counter[int]:
    return Counter(pots_on(kafka, topic))


def has_taken(server: ServerProcess, row: str) -> float:
    """Return a counter of the server's metrics about the endpoint of readings."""
    lines = server.http.get(f"{server.settings.server.url}/metrics").text.splitlines()
    wanted = [line for line in lines if line.startswith("caraway_source_dataset_counter_total") and row in line]
    return sum(float(line.rpartition(" ")[2]) for line in wanted if 'dataset_name="Readings"' in line)


@pytest.fixture(scope="module")
def started(kafka: str, module_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("intake"), kafka=kafka, postgres=module_postgres)
    process.start()
    process.commit(garden.graph())
    yield process
    process.kill()
    process.http.close()


@pytest.fixture
def server(started: ServerProcess) -> ServerProcess:
    """Return a server whose process for large requests runs."""

    def starts() -> bool:
        # The request that finds no process is taken by the server, and has it started.
        assert started.log("readings", marked("first")).status_code == 200
        return intake_of(started) is not None and "the process for large log requests takes them" in started.said()

    eventually(starts, started.said)
    return started


def test_the_outcome_is_that_of_the_server(server: ServerProcess, kafka: str) -> None:
    topic, marker = server.topic("Readings"), f"same {time.time_ns()}"
    rows = marked(marker)
    before, accepted = counted(kafka, topic), has_taken(server, "msgs_processed")
    large = server.log("readings", rows)
    assert counted(kafka, topic) - before == Counter(number for number in range(ROWS) if number % 100)
    assert has_taken(server, "msgs_processed") - accepted == ROWS - ROWS // 100
    # The server takes small requests itself: their outcomes together are that of the large one.
    small = [server.log("readings", rows[start : start + 50]) for start in range(0, ROWS, 50)]
    found = large.json()
    assert sum(answer.json()["accepted"] for answer in small) == found["accepted"]
    assert sum(answer.json()["rejected"] for answer in small) == found["rejected"]
    assert found["errors"][0] == small[0].json()["errors"][0]
    assert found["warnings"] == small[0].json()["warnings"]
    letters = [msgspec.json.decode(value) for value in records(kafka, DEAD_LETTERS) if marker.encode() in value]
    assert Counter(letter["row"]["pot"] for letter in letters) == Counter(2 * list(range(0, ROWS, 100)))
    assert len({msgspec.json.encode({**letter, "time": 0}) for letter in letters}) == ROWS // 100


def test_what_the_process_can_t_take_is_refused_as_by_the_server(server: ServerProcess) -> None:
    many = [{"pot": 1}] * ROWS
    for wrong in (
        {"pot": [1] * ROWS, "at": [1] * (ROWS + 1)},
        many,
        "x" * 10_000,
        7 * [[1] * 1_000],
        {"pot": "x" * 9_000},
    ):
        large = server.log("readings", wrong)
        assert large.status_code in {400, 422}, large.text
        assert large.json()["err_msg"]
    deep = server.log("readings", [{"pot": 1, "moisture": 1, "at": 1, "note": [[[1]]] * 3_000}])
    assert deep.status_code == 200
    nested: object = 1
    for _ in range(70):
        nested = [nested]
    refused = server.log("readings", [{"pot": 1, "note": nested, "text": "x" * 10_000}])
    assert (refused.status_code, "levels deep" in refused.json()["err_msg"]) == (400, True)
    assert server.log("unknown", many).status_code == 404
    assert intake_of(server) is not None


def test_a_killed_process_takes_each_row_once(server: ServerProcess, kafka: str) -> None:
    process = intake_of(server)
    assert process is not None
    topic, marker = server.topic("Readings"), f"killed {time.time_ns()}"
    before = counted(kafka, topic)
    rows, key = marked(marker, 8_000), {"Idempotency-Key": marker}
    first = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        os.kill(process, SIGSTOP)
        request = thread.submit(server.log, "readings", rows, key)
        # The process works in slices of time until some rows are there. It is suspended while they are counted.
        deadline = deadline_in(TIMEOUT_S)
        while end_of(kafka, topic) <= before.total():
            assert time.monotonic() < deadline, server.said()
            os.kill(process, SIGCONT)
            time.sleep(0.003)
            os.kill(process, SIGSTOP)
        os.kill(process, SIGKILL)
        answer = request.result()
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert end_of(kafka, topic) < before.total() + 7_920
    elapsed = {"Caraway-Elapsed-Ms": str(int(1000 * (time.monotonic() - first)))}
    again = server.log("readings", rows, {**key, **elapsed}).json()
    assert (again["accepted"], again["rejected"]) == (7_920, 80)
    assert counted(kafka, topic) - before == Counter(number for number in range(8_000) if number % 100)
    # Another one is started, and takes requests.

    def replaced() -> bool:
        assert server.log("readings", marked("next")).status_code == 200
        return intake_of(server) not in {None, process}

    eventually(replaced, server.said)
    end = end_of(kafka, topic)
    assert server.log("readings", marked("last")).json()["accepted"] == ROWS - ROWS // 100
    assert end_of(kafka, topic) == end + ROWS - ROWS // 100


def test_the_process_ends_with_its_server_which_is_killed_or_stopped(server: ServerProcess) -> None:
    process = intake_of(server)
    server.kill()
    eventually(lambda: not Path(f"/proc/{process}").exists(), server.said)
    server.log_file.write_text("")
    server.start()
    assert server.log("readings", marked("again")).status_code == 200
    eventually(lambda: intake_of(server) is not None, server.said)
    process = intake_of(server)
    server.terminate()
    assert server.wait() == 0
    assert not Path(f"/proc/{process}").exists()
