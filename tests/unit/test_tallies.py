"""Notes that are added up later: none is lost, and histograms are those of prometheus_client."""

import random
import threading
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

from caraway.process.tallies import MOST_NOTES, Notes, Times

BOUNDS = (2**-10, 2**-7, 1.0)


def test_no_note_of_any_thread_is_lost_while_others_read() -> None:
    sums = [0, 0]

    def add_up(notes: Sequence[int]) -> None:
        # Two steps, between which another thread would lose counts.
        number, total = sums
        sums[0], sums[1] = number + len(notes), total + sum(notes)

    notes, each, threads = Notes(add_up), 20_000, 4

    def work() -> None:
        for _ in range(each):
            notes.note(1)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    before = 0
    while any(thread.is_alive() for thread in running):
        with notes.settled():
            assert sums[0] == sums[1] >= before
            before = sums[0]
    with notes.settled():
        assert sums == [each * threads] * 2


def test_few_notes_wait_and_many_are_added_up() -> None:
    sizes: list[int] = []
    notes = Notes[str](lambda some: sizes.append(len(some)))
    for _ in range(2 * MOST_NOTES + 1):
        notes.note("x")
    assert sizes == [MOST_NOTES, MOST_NOTES]
    with notes.settled():
        assert sizes == [MOST_NOTES, MOST_NOTES, 1]


def test_times_are_in_the_buckets_of_prometheus_client() -> None:
    rng, registry = random.Random(3), CollectorRegistry()
    theirs = Histogram("waits_seconds", "Waits.", ["who"], buckets=BOUNDS, registry=registry)
    times = Times("waits_seconds", "Waits.", ["who"], BOUNDS)
    # The bounds themselves, beside times of all buckets.
    # Multiples of 2 to the power of -20 have the same sum in each order.
    waits = [*BOUNDS, 0.0, *(round(10 ** rng.uniform(-4, 1) * 2**20) / 2**20 for _ in range(500))]
    while waits:
        who, some = rng.choice(["ann", "bob"]), [waits.pop() for _ in range(min(len(waits), rng.randrange(1, 5)))]
        for seconds in some:
            theirs.labels(who).observe(seconds)
        times.add((who,), some)
    (expected,) = theirs.collect()
    wanted = {(s.name, *sorted(s.labels.items())): s.value for s in expected.samples if not s.name.endswith("_created")}
    assert {(s.name, *sorted(s.labels.items())): s.value for s in times.family().samples} == wanted
