"""A caller that does nothing wrong, and the noise of the machine meanwhile; each in a process of its own.

    python -m tests.fuzz.healthy caller HOST PORT TOKEN
    python -m tests.fuzz.healthy control
    python -m tests.fuzz.healthy queue PID

All begin something every 20 ms until their input is closed, and then print how long each one took, as JSON. The
caller makes a query; the control does nothing but the little work that a client does, so that all it waits for is the
machine. The queue looks how long threads of the server were ready to run since its last look, while the machine ran
other programs.
"""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

INTERVAL_S = 0.02
# A client works for about as long on one request.
WORK_S = 0.0005
BODY = json.dumps({"inputs": ["Tap.pot"], "outputs": ["State.species", "State.mean"], "data": [{"Tap.pot": 1}]})


def caller(host: str, port: int, token: str) -> Callable[[], None]:
    """Return what makes one query, over one connection."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def query() -> None:
        connection.request("POST", "/api/v1/query", BODY, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise AssertionError(f"a healthy query was answered {answer.status}: {text[:500]!r}")

    return query


def control() -> None:
    """Work for as long as a client does."""
    end = time.thread_time() + WORK_S
    while time.thread_time() < end:
        pass


def ready(pid: int) -> dict[str, float]:
    """Return for how many seconds each thread of a process has been ready to run, but didn't; nothing but on Linux."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            # The thread has ended since it was listed, or since its file was opened.
            continue
    return found


def queue(pid: int) -> Callable[[], float]:
    """Return what tells for how long a thread of a process was ready since the last call: that which was it longest."""
    last = ready(pid)

    def waited() -> float:
        nonlocal last
        before, last = last, ready(pid)
        return max((seconds - before.get(task, seconds) for task, seconds in last.items()), default=0.0)

    return waited


def measure(work: Callable[[], float | None]) -> None:
    """Do something again and again until the input is closed, and print when each began and how long it took.

    If it returns a number of seconds, these are printed instead.
    """
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    work()
    print("ready", flush=True)  # noqa: T201 (read by the process that started this one)
    found: list[tuple[float, float]] = []
    due = time.monotonic()
    while not ended.is_set():
        due += INTERVAL_S
        time.sleep(max(0.0, due - time.monotonic()))
        seconds = work()
        now = time.monotonic()
        # From when it was due: a caller that can't begin because the last answer hasn't come waits as well.
        found.append((due, now - due) if seconds is None else (now, seconds))
        due = max(due, now - INTERVAL_S)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["caller", host, port, token]:
            measure(caller(host, int(port), token))
        case ["queue", pid]:
            measure(queue(int(pid)))
        case _:
            measure(control)
