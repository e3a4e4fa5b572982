"""Random arrivals at a source: late, repeated, out of order, deleted, at one instant, long ago and far ahead."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from caraway.graph.specs import DatasetSpec
from tests.parity.values import BASE, DAY, FAR_FUTURE, FAR_PAST, SECOND, value


@dataclass(frozen=True)
class Arrival:
    """A record that arrives. One with the number of an earlier one is that record again.

    `row` is in stored form, with the time stamp; also that of a delete.
    """

    number: int
    time_us: int
    row: Mapping[str, Any]
    delete: bool = False


def trace(rng: Random, spec: DatasetSpec, rows: int) -> tuple[Arrival, ...]:
    """Draw the arrivals at a source, in order."""
    times = _instants(rng, rows)
    repeats, deletes = rng.random() < 0.4, bool(spec.keys) and rng.random() < 0.7
    arrivals: list[Arrival] = []
    for number in range(rows):
        time_us = rng.choice(times)
        row = {f.name: time_us if f.timestamp else value(rng, f.dtype) for f in spec.fields}
        arrivals.append(Arrival(number, time_us, row, delete=deletes and rng.random() < 0.15))
        if repeats and rng.random() < 0.2:
            arrivals.append(rng.choice(arrivals))
    return tuple(arrivals)


def _instants(rng: Random, rows: int) -> list[int]:
    """Instants that coincide, lie at the edges of windows, or a microsecond beside another."""
    near = [SECOND, 5 * SECOND, 1]
    far = [SECOND // 10, 60 * SECOND, DAY]
    beside = [1, SECOND, 61 * SECOND, 3601 * SECOND]
    found = [BASE + rng.choice([0, 1, -1]) + rng.randrange(-8, 9) * rng.choice(near) for _ in range(rows // 4)]
    found += [BASE + rng.randrange(-300, 300) * rng.choice(far) for _ in range(rows // 2)]
    found += [rng.choice(found or [BASE]) + rng.choice([-1, 1]) * rng.choice(beside) for _ in range(5)]
    if rng.random() < 0.3:
        found += [rng.choice([FAR_PAST, FAR_FUTURE, 0, -1])]
    return found
