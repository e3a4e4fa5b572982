"""What depends on an order that nobody defines: that of rows of a join of tables which begin at one time.

The in-process engine has them in the order of left versions, a stream has those that the left side begins first, then
the others by right records and left keys (docs/parity.md). Both are right. So where the engines differ, the in-process
one is asked again with such rows in other orders: what it says otherwise then is undefined, all else is a difference.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from caraway.engine_local import LocalEngine, pipelines
from caraway.engine_local.operators.joins import join_tables
from caraway.engine_local.tables import Relation, Table, Version, begin_of, key_of
from caraway.errors import InvalidInputError
from caraway.graph.operators import Join
from tests.parity.comparing import Difference, answered, columns_apart, rows_of
from tests.parity.graphs import oracle
from tests.parity.traffic import Part

#: Of ten rows that tie, each one is the last in one of so many shuffles, but for one time in hundred.
ORDERS = 100
#: A case is told by its first difference.
ENOUGH = 10

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Judged:
    """Differences, and those of which no order of ties is the right one."""

    differences: Sequence[Difference]
    undefined: Sequence[Difference]


def apart_from_ties(part: Part, found: Sequence[Difference]) -> Judged:
    """Tell apart what differs, and what the in-process engine itself answers so in one order of ties only.

    Args:
        part: A case.
        found: What differs in it.

    Returns:
        At most `ENOUGH` differences, and what is undefined of all that comes before the last of them.
    """
    left: list[Difference] = []
    undefined: list[Difference] = []
    with warnings.catch_warnings():
        # A sum that doesn't fit is null in both.
        warnings.simplefilter("ignore")
        orders = _Orders(part)
        ties = bool(found) and orders.has_ties()
        for difference in found:
            (undefined if ties and orders.decide(difference) else left).append(difference)
            if len(left) == ENOUGH:
                break
    return Judged(left, undefined)


class _Orders:
    """The in-process engine with the ties of a case in other orders, by number."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._specs = {spec.name: spec for spec in part.case.derived}
        self._engine = cache(lambda number: self._made(number)[0])
        self._rows = cache(self._rows_of)

    def has_ties(self) -> bool:
        return self._made(0)[1]

    def decide(self, difference: Difference) -> bool:
        """Tell whether all that differs, each column by itself, is one thing in one order and another in another."""
        if difference.asked is None and difference.row is None:
            return False
        apart = self._apart(difference, difference.streaming)
        for number in range(ORDERS):
            engine = self._engine(number)
            if engine is not None:
                apart -= self._apart(difference, self._answer(difference, number, engine))
            if not apart:
                return True
        return False

    def _apart(self, difference: Difference, answer: Any) -> set[str]:
        if difference.asked is not None:
            return columns_apart(self._specs[difference.dataset], difference.local, answer)
        return set() if difference.local == answer else {"how often"}

    def _answer(self, difference: Difference, number: int, engine: LocalEngine) -> object:
        if difference.asked is not None:
            return answered(self._specs[difference.dataset], [difference.asked], engine)[0]
        return self._rows(number, difference.dataset).get(difference.row, 0)

    def _rows_of(self, number: int, dataset: str) -> Mapping[object, int]:
        engine = self._engine(number)
        return {} if engine is None else rows_of(self._part, self._specs[dataset], engine)

    def _made(self, number: int) -> tuple[LocalEngine | None, bool]:
        """Make an engine, and tell whether there are ties."""
        with _order(number) as ties:
            try:
                return oracle(self._part.case, self._part.arrived()), bool(ties)
            except InvalidInputError:
                # A user's function fails for a row that there is in this order only.
                return None, bool(ties)


@contextmanager
def _order(number: int) -> Iterator[list[int]]:
    """Let engines put the ties of joins of tables into another order; yields how many rows tie, each time."""
    rng = Random(number)  # noqa: S311 (test data)
    sizes: list[int] = []
    # Each second one is that of a stream, but for the order of right records.
    arranged: Callable[..., list[Version]] = _shuffled if number % 2 else _as_in_a_stream

    def joined(
        operator: Join, left: Table, right: Table, *, keys: Sequence[str], right_keys: Sequence[str], timestamp: str
    ) -> Relation:
        made = join_tables(operator, left, right, keys=keys, right_keys=right_keys, timestamp=timestamp)
        versions: list[Version] = []
        for _, group in groupby(made.versions, begin_of):
            tied = list(group)
            if len(tied) > 1:
                sizes.append(len(tied))
                tied = arranged(rng, tied, operator, left, keys)
            versions += tied
        return Relation(keys, versions)

    with patch.object(pipelines, "join_tables", joined):
        yield sizes


def _shuffled(rng: Random, tied: list[Version], *_: object) -> list[Version]:
    return rng.sample(tied, len(tied))


def _as_in_a_stream(
    rng: Random, tied: list[Version], operator: Join, left: Table, keys: Sequence[str]
) -> list[Version]:
    """Put what the left side begins first; then what a right record begins, by the bytes of left keys."""
    begun = {(key_of(version.row, keys), version.begin_us) for version in left.versions}
    by_left = [version for version in tied if (key_of(version.row, keys), version.begin_us) in begun]
    by_right: dict[object, list[Version]] = {}
    for version in tied:
        if (key_of(version.row, keys), version.begin_us) not in begun:
            by_right.setdefault(key_of(version.row, operator.left_on), []).append(version)
    groups = rng.sample(list(by_right.values()), len(by_right))
    return [*by_left, *(version for group in groups for version in sorted(group, key=lambda v: _bytes_of(v, keys)))]


def _bytes_of(version: Version, keys: Sequence[str]) -> bytes:
    return _ENCODE([version.row[name] for name in keys])
