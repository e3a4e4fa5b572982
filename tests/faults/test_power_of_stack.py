"""The power of a whole stack fails: Postgres, Kafka, engine, server and archive on one disk, all at the same moment."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx2
import pandas as pd
import pytest

from caraway.client import Client
from caraway.process.private_files import sync
from tests.faults.numbered_orders import (
    BEGIN,
    ITEMS,
    USERS,
    WEBHOOK,
    bought_of,
    definitions,
    order,
    prices,
    spent_of,
)
from tests.integration.server.server_process import eventually, numbers_of
from tests.services.power import powered
from tests.services.whole_stack import WholeStack, whole_stack
from tests.timeouts import scaled

ROWS_OF_REQUEST = 10
# Events come all the time, at a pace at which they can be asked for in one query at the end.
PACE_S = 0.05
# The events that are acknowledged before the system writes its pages, and those between that and the power failure.
BEFORE, BETWEEN = 1_000, 1_000
# An operator sends again what was logged in the last seconds, of which the first events are on the disk.
OVERLAP = 100
# A checkpoint, a snapshot and rows of the archive are written between all these events.
SETTINGS = {
    "CARAWAY_SPARK__CHECKPOINT_INTERVAL_SECONDS": "5",
    "CARAWAY_ARCHIVE__SECONDS": "1",
    "CARAWAY_SERVER__SNAPSHOT_SECONDS": "5",
}
WAIT_S = 240.0


@dataclass
class Load:
    """Requests with ten events each, whose keys and times of sending are kept, until the server is gone."""

    stack: WholeStack
    sent: dict[str, tuple[list[int], float]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def numbers(self) -> list[int]:
        """All events that were sent."""
        return [number for numbers, _ in self.sent.values() for number in numbers]

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Send events for the duration of a block, in which the server's power fails."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until so many events are acknowledged."""
        eventually(lambda: len(self.acknowledged) >= count or bool(self.refused))
        assert not self.refused

    def send_again(self, stack: WholeStack, *, after: int) -> None:
        """Send the requests with later events again, also those that weren't answered, and then a new one."""
        self.stack = stack
        last = max(self.numbers)
        self.sent["events that are new"] = list(range(last + 1, last + 1 + ROWS_OF_REQUEST)), time.monotonic()
        for key, (numbers, sent_at) in self.sent.items():
            if numbers[0] > after:
                elapsed = str(int(1000 * (time.monotonic() - sent_at)))
                answer = self._send(key, numbers, {"Caraway-Elapsed-Ms": elapsed})
                assert (answer.status_code, answer.json().get("accepted")) == (httpx2.codes.OK, len(numbers)), (
                    answer.text
                )

    def _run(self) -> None:
        first = 0
        while not self.over.wait(PACE_S):
            numbers, key = list(range(first, first + ROWS_OF_REQUEST)), f"events from {first}"
            self.sent[key] = numbers, time.monotonic()
            try:
                answer = self._send(key, numbers, {})
            except httpx2.TransportError:
                return
            if answer.status_code == httpx2.codes.OK and answer.json()["accepted"] == ROWS_OF_REQUEST:
                self.acknowledged += numbers
            else:
                self.refused.append(answer.text)
                return
            first += ROWS_OF_REQUEST

    def _send(self, key: str, numbers: Sequence[int], headers: dict[str, str]) -> httpx2.Response:
        body = {"webhook": WEBHOOK, "endpoint": "orders", "data": [order(number) for number in numbers]}
        return self.stack.http.post("/log", json=body, headers={"Idempotency-Key": key, **headers})


def written_by_the_system(folder: Path, *, last: str = "", only: str = "") -> None:
    """Write pages and names of a folder to the disk, as the system does some time after they were written.

    Checkpoints are the first. A job whose checkpoint is newer than what is left of the topic that it writes notices
    that only if it has noted its epochs in between, which it does every few seconds (docs/operate/security.md).

    Args:
        folder: The folder. Programs go on in it meanwhile.
        last: A part of the paths of the files that are written after all others.
        only: A part of the paths of the files that are written.
    """

    def turn(path: Path) -> tuple[bool, bool]:
        return bool(last) and last in str(path), "checkpoints" not in path.parts

    for path in sorted([folder, *folder.rglob("*")], key=turn):
        if only in str(path):
            # A program has removed the file meanwhile.
            with suppress(FileNotFoundError):
                sync(path)


def archived(stack: WholeStack, count: int) -> bool:
    """Return whether the archive has so many events."""
    rows = [table["rows"] for table in stack.get("/archive")["tables"] if table["dataset"] == "Orders"]
    return bool(rows) and rows[0] >= count


def check_served(client: Client, there: Iterable[int], sent: Sequence[int]) -> None:
    """Check that all aggregates have each event that is there once, and no other one."""
    is_there = set(there)
    client.wait(timeout=scaled(WAIT_S), progress=False)
    times = client.query(["Numbered.number"], ["Numbered.times"], pd.DataFrame({"Numbered.number": list(sent)}))
    counted = dict(zip(sent, times["Numbered.times"], strict=True))
    assert counted == {number: int(number in is_there) for number in sent}
    users = pd.DataFrame({"Shopper.user": range(USERS)})
    spent = client.query(["Shopper.user"], ["Shopper.orders", "Shopper.total"], users)
    assert dict(enumerate(zip(spent["Shopper.orders"], spent["Shopper.total"], strict=True))) == spent_of(is_there)
    bought = client.query(["Item.item"], ["Item.orders"], pd.DataFrame({"Item.item": ITEMS}))
    assert dict(zip(ITEMS, bought["Item.orders"], strict=True)) == bought_of(is_there)


def check_offline(client: Client, there: Iterable[int]) -> None:
    """Check that the values of the past, which are computed of the archive and the topics, are the same."""
    rows = pd.DataFrame({"Shopper.user": range(USERS), "at": BEGIN + timedelta(days=60)})
    found = client.training_set(["Shopper.user"], ["Shopper.orders", "Shopper.total"], "at", rows, progress=False)
    table = found.to_pandas()
    assert dict(enumerate(zip(table["Shopper.orders"], table["Shopper.total"], strict=True))) == spent_of(there)


def check_told(stack: WholeStack, reader: str, topic: str) -> None:
    """Check that it is told what a topic lacks that a reader had read, with the remedy."""
    told = stack.get("/health")["warning"]
    assert "lacks records" in told
    assert "end again what was logged before the failure" in told
    metrics = stack.http.get(f"{stack.url}/metrics").raise_for_status().text.splitlines()
    assert f'caraway_lost_records{{reader="{reader}",topic="{topic}"}} 1.0' in metrics, told


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The events before a power failure.

    Attributes:
        load: All events.
        written: The events that had been acknowledged when the system began to write its pages.
    """

    load: Load
    written: list[int]


def power_fails(
    folder: Path, write: Callable[[WholeStack], object], write_late: Callable[[WholeStack], object] = lambda _: None
) -> Failure:
    """Run a stack under load, and end it by a power failure, after which the folder is an ordinary one.

    The second commit, and many events, come after pages were written by `write`; all events up to a moment shortly
    before the failure were served and archived, and some pages may be written by `write_late` then.
    """
    with powered(folder) as power:
        with whole_stack(folder, SETTINGS) as stack, closing(stack.client()) as client:
            client.commit("Orders", *definitions(second=False))
            log_prices(stack)
            load = Load(stack)
            with load.under_way():
                load.wait_for(BEFORE)
                client.wait(timeout=scaled(WAIT_S), progress=False)
                written = list(load.acknowledged)
                write(stack)
                client.commit("Items", *definitions(second=True))
                load.wait_for(len(load.acknowledged) + BETWEEN)
                client.wait(timeout=scaled(WAIT_S), progress=False)
                eventually(lambda: archived(stack, len(written) + BETWEEN))
                write_late(stack)
                stack.kill()
        power.cut()
    return Failure(load=load, written=written)


def log_prices(stack: WholeStack) -> None:
    answer = stack.http.post("/log", json={"webhook": WEBHOOK, "endpoint": "prices", "data": prices()})
    assert answer.json()["accepted"] == len(ITEMS), answer.text


def on_the_topic(stack: WholeStack) -> set[int]:
    """Return the events that the broker has, after the check that it has each once."""
    found = numbers_of(stack.kafka, stack.topic("Orders"))
    assert set(found.values()) <= {1}
    return set(found)


@pytest.mark.timeout(900)
def test_a_stack_that_loses_power_has_what_was_written_and_tells_what_was_not(tmp_path: Path) -> None:
    """The events that are left are counted once, and no others; after all were sent again, each event is."""
    folder = tmp_path / "data"
    failure = power_fails(folder, lambda stack: written_by_the_system(folder, last=stack.topic("Orders")))
    load, written = failure.load, failure.written
    with whole_stack(folder, SETTINGS) as stack, closing(stack.client()) as client:
        there = on_the_topic(stack)
        assert there >= set(written)
        assert set(load.acknowledged) - there, "nothing was lost, so that this test shows nothing"
        check_served(client, there, load.numbers)
        check_offline(client, there)
        check_told(stack, "archive", stack.topic("Orders"))
        load.send_again(stack, after=written[-1] - OVERLAP)
        check_served(client, load.numbers, load.numbers)
        check_offline(client, load.numbers)
        assert on_the_topic(stack) == set(load.numbers)


@pytest.mark.timeout(900)
def test_what_a_job_made_of_lost_events_goes_with_a_new_version(tmp_path: Path) -> None:
    """The job's rows were written to the disk and its input wasn't: its topic has rows of events that aren't there."""
    folder = tmp_path / "data"
    failure = power_fails(
        folder,
        lambda _: written_by_the_system(folder),
        lambda stack: written_by_the_system(folder / "kafka", only=stack.topic("Priced")),
    )
    load, written = failure.load, failure.written
    with whole_stack(folder, SETTINGS) as stack, closing(stack.client()) as client:
        assert on_the_topic(stack) >= set(written)
        assert numbers_of(stack.kafka, stack.topic("Priced")).keys() - on_the_topic(stack)
        check_told(stack, "archive", stack.topic("Orders"))
        load.send_again(stack, after=written[-1] - OVERLAP)
        client.commit("Computed anew", *definitions(second=True, version=2))
        check_served(client, load.numbers, load.numbers)
        check_offline(client, load.numbers)


@pytest.mark.timeout(900)
def test_a_stack_that_loses_power_before_the_system_has_written_anything_starts_again(tmp_path: Path) -> None:
    """Only what the parts have synced themselves is left: the definitions, and none of the events."""
    folder = tmp_path / "data"
    load = power_fails(folder, lambda _: None).load
    with whole_stack(folder, SETTINGS) as stack, closing(stack.client()) as client:
        assert not on_the_topic(stack)
        check_served(client, [], load.numbers)
        check_told(stack, "index", stack.topic("Seen"))
        log_prices(stack)
        load.send_again(stack, after=-1)
        check_served(client, load.numbers, load.numbers)
        check_offline(client, load.numbers)
