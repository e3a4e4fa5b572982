"""A run of the fuzzer against a server: send, measure, and say what is wrong."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import psutil

from caraway.process.settings.server import ServerSettings
from tests.fuzz.messages import Message
from tests.fuzz.sending import Reply, send

MB = 1024 * 1024
# How much more memory than at the start the server may take: what all requests together may take (the setting
# `server.requests_memory_mb`), and threads, caches and what the allocator keeps. How long another caller may wait.
MEMORY_MB = ServerSettings().requests_memory_mb + 150
# How much the process of an offline query may take. A server has as many as its setting allows, one by default.
QUERY_MB = 500
QUERY_MODULE = "caraway.offline"
WAIT_S = 0.25
SENDERS = 4
SAMPLE_S = 0.1

Times = Sequence[tuple[float, float]]


@dataclass(slots=True)
class Findings:
    """The results of a run.

    Attributes:
        replies: One for each message.
        start_mb: Memory of the server and its processes before, without those of offline queries.
        peak_mb: The most that it was meanwhile.
        peak_at: When it was so much, by the monotonic clock.
        query_mb: The most memory of the processes of offline queries.
        seconds: How long the run took.
        waits: When each healthy query was due and how long it took, in seconds.
        noise: The same of the control, which asks nobody.
        queue: When it was looked how long threads of the server were ready to run, but didn't, and for how long.
    """

    replies: list[Reply] = field(default_factory=list)
    start_mb: float = 0.0
    peak_mb: float = 0.0
    peak_at: float = 0.0
    query_mb: float = 0.0
    seconds: float = 0.0
    waits: Times = ()
    noise: Times = ()
    queue: Times = ()

    def faults(self, *, waits: bool) -> list[str]:
        """Return what is wrong: answers of 5xx, complete requests without an answer, memory, and waits if wanted."""
        found = [
            f"{named(reply)}: answered {max(reply.statuses)} to {reply.beginning!r}: {reply.text!r}"
            for reply in self.replies
            if reply.statuses and max(reply.statuses) >= 500
        ]
        found += [
            f"{named(reply)}: no answer after {reply.seconds:.1f} s to {reply.beginning!r}"
            for reply in self.replies
            if reply.answered and not reply.statuses
        ]
        if self.peak_mb - self.start_mb > MEMORY_MB:
            found.append(
                f"the server took {self.peak_mb - self.start_mb:.0f} MB more than the {self.start_mb:.0f} MB before, "
                f"beside {'; '.join(self._beside(self.peak_at, SAMPLE_S))}"
            )
        if self.query_mb > QUERY_MB:
            found.append(f"the processes of offline queries took {self.query_mb:.0f} MB")
        found += [
            f"another caller waited {took:.3f} s, {took - noise:.3f} s of them for the server, beside "
            + "; ".join(self._beside(due, took))
            for due, took in (self.waits if waits else ())
            if took > WAIT_S and took - (noise := self._noise_at(due, took)) > WAIT_S
        ]
        return found

    def _noise_at(self, due: float, took: float) -> float:
        return max(noise_at(self.noise, due, took), queued_at(self.queue, due, took))

    def _beside(self, due: float, took: float) -> list[str]:
        """Describe the messages that were under way during a wait, those that took longest first."""
        together = [r for r in self.replies if r.begun <= due + took and r.begun + r.seconds >= due]
        together.sort(key=lambda reply: reply.seconds, reverse=True)
        return [
            f"{named(r)} {r.statuses[:1]} {r.seconds:.2f} s {r.size} bytes {r.beginning[:80]!r}" for r in together[:4]
        ]

    def trials(self) -> list[Reply]:
        """Return the replies to trials of definitions that went as far as to their sources."""
        tried = (reply for reply in self.replies if b"/source/try?name=Tried" in reply.beginning)
        return [reply for reply in tried if 200 in reply.statuses]

    def summary(self) -> str:
        """Return the figures of the run."""
        statuses = Counter(status for reply in self.replies for status in reply.statuses)
        kinds = Counter(reply.kind for reply in self.replies)
        longest = sorted(self.replies, key=lambda reply: reply.seconds, reverse=True)[:3]
        return "\n".join(
            (
                f"{len(self.replies)} messages in {self.seconds:.0f} s: {dict(sorted(kinds.items()))}",
                f"statuses: {dict(sorted(statuses.items()))}, {sum(not r.statuses for r in self.replies)} without",
                f"slowest: {', '.join(f'{r.kind} {r.seconds:.2f} s {r.statuses[:1]}' for r in longest)}",
                f"trials of sources: {len(self.trials())}",
                f"memory: {self.start_mb:.0f} MB before, at most {self.peak_mb:.0f} MB",
                f"memory of offline queries: at most {self.query_mb:.0f} MB",
                f"another caller: {spread(self.waits)}",
                f"the machine's own noise (a loop that asks nobody): {spread(self.noise)}",
                f"threads of the server were ready and didn't run: {spread(self.queue)}",
            )
        )


def named(reply: Reply) -> str:
    """Return the kind of a message and its number, by which `tests.fuzz.again` sends it again."""
    return f"{reply.kind} {reply.number}"


def noise_at(noise: Times, due: float, took: float) -> float:
    """Return the longest that the control waited while a query was under way: the machine was busy elsewhere."""
    return max((late for at, late in noise if at <= due + took and at + late >= due), default=0.0)


def queued_at(queue: Times, due: float, took: float) -> float:
    """Return how long threads of the server were ready during a query, in turn, while the machine ran others."""
    return min(took, sum(seconds for at, seconds in queue if due <= at <= due + took))


def spread(times: Times) -> str:
    """Spell how long things took."""
    took = sorted(seconds * 1_000 for _, seconds in times)
    if not took:
        return "nothing"
    at = partial(_quantile, took)
    return f"{len(took)} times, p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, at most {took[-1]:.0f} ms"


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def memory_mb(process: psutil.Process) -> tuple[float, float]:
    """Return what a process and its children hold, and what those of them hold that work on offline queries."""
    held, by_queries = 0, 0
    queries: set[int] = set()
    # A child is listed behind its parent.
    for one in (process, *process.children(recursive=True)):
        try:
            if one.ppid() in queries or QUERY_MODULE in one.cmdline():
                queries.add(one.pid)
                by_queries += _own(one)
            else:
                held += one.memory_info().rss if one is process else _own(one)
        except psutil.NoSuchProcess:
            # It ended since they were listed.
            continue
    return held / MB, by_queries / MB


def _own(process: psutil.Process) -> int:
    """Return the memory of a process; what it shares with those that were forked as it was is counted once."""
    try:
        shared: int = process.memory_full_info().pss
    except psutil.AccessDenied:
        # Functions and connectors may be another user's.
        shared = process.memory_info().rss
    return shared


class Beside:
    """A process of `tests.fuzz.healthy`, until it is stopped."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.healthy", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the process beside the fuzzer didn't start"

    def stop(self) -> Times:
        """Stop it, and return what it measured."""
        printed, _ = self._process.communicate()
        assert self._process.returncode == 0, "the healthy caller failed; what it says stands above"
        return [(due, took) for due, took in json.loads(printed)]


class _Watch(threading.Thread):
    """Takes the greatest memory of a server."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.peak_mb = self.peak_at = self.query_mb = 0.0
        self._process = process
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            held, by_queries = memory_mb(self._process)
            self.query_mb = max(self.query_mb, by_queries)
            if held > self.peak_mb:
                self.peak_mb, self.peak_at = held, time.monotonic()

    def stop(self) -> None:
        self._ended.set()
        self.join()


class _Waiting:
    """Messages that several threads take one by one, each made only then."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)
        self._lock = threading.Lock()

    def take(self) -> Message | None:
        with self._lock:
            return next(self._messages, None)


def _send_each(host: str, port: int, waiting: _Waiting) -> list[Reply]:
    replies = []
    while (message := waiting.take()) is not None:
        replies.append(send(host, port, message))
    return replies


def fuzz(  # noqa: PLR0917 (all but the last are given in this order everywhere)
    host: str, port: int, pid: int, messages: Iterable[Message], token: str, asked: tuple[str, int, int] | None = None
) -> Findings:
    """Send messages to a server while another caller asks, and return what was found.

    Args:
        host: The host of the server.
        port: The port of the server.
        pid: The process of the server.
        messages: The messages to send, four at a time.
        token: The token of the other caller.
        asked: Host, port and process of the server that the other caller asks, if it is another one.
    """
    beside = (host, port, pid) if asked is None else asked
    process = psutil.Process(pid)
    waiting = _Waiting(messages)
    found = Findings(start_mb=memory_mb(process)[0])
    watch, healthy = _Watch(process), Beside("caller", beside[0], str(beside[1]), token)
    control, queue = Beside("control"), Beside("queue", str(beside[2]))
    watch.start()
    begun = time.monotonic()
    try:
        with ThreadPoolExecutor(SENDERS) as senders:
            for done in [senders.submit(_send_each, host, port, waiting) for _ in range(SENDERS)]:
                found.replies += done.result()
    finally:
        watch.stop()
        found.waits, found.noise, found.queue = healthy.stop(), control.stop(), queue.stop()
    found.peak_mb, found.peak_at, found.query_mb = watch.peak_mb, watch.peak_at, watch.query_mb
    found.seconds = time.monotonic() - begun
    return found
