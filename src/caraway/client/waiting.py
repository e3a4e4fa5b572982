"""Waiting until rows and commits are served, and showing the progress."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from caraway.client.progress import Progress
from caraway.client.response import Response
from caraway.errors import InvalidInputError, NotServedError
from caraway.process.displays import Table, html

# Seconds for which the server waits before it answers that something lags: in the first request, and at most. The first
# wait is short, so that some progress is shown soon. Each request follows the chain of jobs anew from its first topic,
# so the waits double up to a time that is enough for the whole chain.
FIRST_S, LONGEST_S = 0.5, 10.0
# The number of lagging parts that a message lists.
SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagging:
    """A commit, job or index that lags.

    Attributes:
        kind: "commit", "job" or "index".
        name: Its name: the id of a commit or job, the asset of an index.
        dataset: The dataset that it computes or serves; empty for a commit.
        records: The number of records by which it lags; None if the server doesn't know.
        reason: The reason why it lags.
    """

    kind: str
    name: str
    dataset: str
    records: int | None
    reason: str

    def __str__(self) -> str:
        behind = f", {self.records:,} records behind" if self.records else ""
        return f"{self.kind} {self.dataset or self.name}{behind}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitResult:
    """The successful end of a wait.

    Attributes:
        seconds: The duration of the wait, in seconds.
        since: The position up to which the topics of the branch's sources are served: the offset behind the last row,
            by topic and partition.
    """

    seconds: float
    since: Mapping[str, Mapping[str, int]]

    def _repr_html_(self) -> str:
        rows = [(topic, p, offset) for topic, offsets in self.since.items() for p, offset in offsets.items()]
        return html(f"Served after {self.seconds:,.1f} s", (), [Table("up to", ("topic", "partition", "offset"), rows)])


class PostWait(Protocol):
    """Posts a body to the server's `/wait`, and repeats it while the server is unreachable, for a number of seconds."""

    def __call__(self, body: Mapping[str, Any], retry_timeout: float, /) -> Response:
        """Return the server's answer."""
        ...


def wait_until_served(
    ask: PostWait,
    *,
    timeout: float,
    commit: bool,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> WaitResult:
    """Post requests until the server reports that all is served; see `Client.wait`.

    Raises:
        InvalidInputError: `timeout` is negative.
        NotServedError: Something still lags when the time is up.
        RemoteError: The server refused.
        UnavailableError: The server doesn't answer.
    """
    if timeout < 0:
        raise InvalidInputError(f"wait: timeout is a number of seconds from 0, not {timeout}")
    started, seconds, since = clock(), FIRST_S, None
    with progress:
        while True:
            left = max(0.0, timeout - (clock() - started))
            body = {"seconds": min(seconds, left), "commit": commit, "since": since}
            answer = ask(body, left).json()
            since = answer["since"] or since
            took = clock() - started
            if answer["served"]:
                progress.show(answer.get("parts", 1), answer.get("parts", 1), "served")
                return WaitResult(seconds=took, since=since or {})
            lagging = tuple(Lagging(**each) for each in answer["lagging"])
            progress.show(answer.get("done", 0), answer.get("parts", len(lagging)), described(lagging[:2]))
            if took >= timeout:
                raise NotServedError(_complaint(lagging, timeout), lagging=lagging)
            seconds = min(2 * seconds, LONGEST_S)


def described(lagging: Sequence[Lagging]) -> str:
    """Return a line that lists the lagging parts."""
    return ", ".join(
        f"{each.kind} {each.dataset or each.name}" + (f" {each.records:,} behind" if each.records else "")
        for each in lagging
    )


def _complaint(lagging: Sequence[Lagging], timeout: float) -> str:
    listed = "".join(f"\n  {each}" for each in lagging[:SHOWN])
    rest = len(lagging) - SHOWN
    more = f"\n  and {rest} more" if rest > 0 else ""
    return f"after {timeout:g} s not all is served; wait for longer, or look at what lags:{listed}{more}"
