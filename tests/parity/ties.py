"""Differences by an order that nobody defines: that of rows of a join of tables which begin at one time.

The in-process engine has them in the order of left versions, a stream has those that the left side begins first, then
the others by right records and left keys (docs/inside/parity.md). Both are right. So where the engines differ, the
in-process one is asked again with such rows in other orders: where none of them gives the stream's answer, it is a
difference.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from caraway.compute.reference import pipelines
from caraway.compute.reference.engine import LocalEngine
from caraway.compute.reference.operators.joins import join_tables
from caraway.compute.reference.tables import Key, Relation, Table, Version, begin_of, key_of
from caraway.errors import InvalidInputError
from caraway.graph.operators import Join
from tests.parity.comparing import Difference, answered, columns_apart, rows_of
from tests.parity.graphs import oracle
from tests.parity.traffic import Part

#: The first one is a stream's nearly always; what it leaves open are the deletes of right rows at one time.
ORDERS = 100
#: A case is reported with its first difference, so few are enough.
ENOUGH = 10

_ENCODE = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Judged:
    """Differences in any order of ties, and those that disappear in one of them."""

    differences: Sequence[Difference]
    undefined: Sequence[Difference]


def apart_from_ties(part: Part, found: Sequence[Difference]) -> Judged:
    """Divide differences into true ones and those that the in-process engine shows, too, in some order of ties.

    Args:
        part: A case.
        found: The differences in it.

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
            (undefined if ties and orders.explain(difference) else left).append(difference)
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

    def explain(self, difference: Difference) -> bool:
        """Return whether the in-process engine answers as the stream does, in one order."""
        if difference.asked is None and difference.row is None:
            return False
        return any(
            engine is not None and self._agrees(difference, self._answer(difference, number, engine))
            for number in range(ORDERS)
            for engine in [self._engine(number)]
        )

    def _agrees(self, difference: Difference, answer: Any) -> bool:
        if difference.asked is not None:
            return not columns_apart(self._specs[difference.dataset], answer, difference.streaming)
        same: bool = answer == difference.streaming
        return same

    def _answer(self, difference: Difference, number: int, engine: LocalEngine) -> object:
        if difference.asked is not None:
            return answered(self._specs[difference.dataset], [difference.asked], engine)[0]
        return self._rows(number, difference.dataset).get(difference.row, 0)

    def _rows_of(self, number: int, dataset: str) -> Mapping[object, int]:
        engine = self._engine(number)
        return {} if engine is None else rows_of(self._part, self._specs[dataset], engine)

    def _made(self, number: int) -> tuple[LocalEngine | None, bool]:
        """Make an engine, and return it with whether there are ties."""
        with _order(number) as ties:
            try:
                return oracle(self._part.case, self._part.arrived()), bool(ties)
            except InvalidInputError:
                # A user's function fails for a row that there is in this order only.
                return None, bool(ties)


@contextmanager
def _order(number: int) -> Iterator[list[int]]:
    """Make engines put the ties of joins of tables into another order; yield a list of how many rows tie, each time."""
    rng = Random(number)
    sizes: list[int] = []

    def joined(
        operator: Join, left: Table, right: Table, *, keys: Sequence[str], right_keys: Sequence[str], timestamp: str
    ) -> Relation:
        made = join_tables(operator, left, right, keys=keys, right_keys=right_keys, timestamp=timestamp)
        left_of = dict(zip(operator.right_on, operator.left_on, strict=True))
        sides = _Sides(keys, _places(left, keys), [left_of[key] for key in right_keys], _places(right, right_keys))
        versions: list[Version] = []
        for _, group in groupby(made.versions, begin_of):
            tied = list(group)
            if len(tied) > 1:
                sizes.append(len(tied))
                # Each second order is that of a stream, as far as it can be told.
                tied = rng.sample(tied, len(tied)) if number % 2 else _as_in_a_stream(rng, tied, sides)
            versions += tied
        return Relation(keys, versions)

    with patch.object(pipelines, "join_tables", joined):
        yield sizes


@dataclass(frozen=True)
class _Sides:
    """Both sides of a join: the columns of the left side's key, and where which key begins at which time."""

    keys: Sequence[str]
    left: Mapping[tuple[Key, int], int]
    left_on: Sequence[str]
    right: Mapping[tuple[Key, int], int]


def _places(table: Table, keys: Sequence[str]) -> Mapping[tuple[Key, int], int]:
    return {(key_of(v.row, keys), v.begin_us): place for place, v in enumerate(table.versions)}


def _as_in_a_stream(rng: Random, tied: list[Version], sides: _Sides) -> list[Version]:
    """Put what the left side begins first, then what right records begin, of each by the bytes of left keys.

    The versions don't show when the end of a right row was known, so it is put anywhere between the others.
    """
    deletes: dict[Key, float] = {}

    def place(version: Version) -> tuple[bool, float, bytes]:
        begins = sides.left.get((key_of(version.row, sides.keys), version.begin_us))
        if begins is not None:
            return False, begins, b""
        right = key_of(version.row, sides.left_on)
        put = sides.right.get((right, version.begin_us))
        record = deletes.setdefault(right, rng.uniform(-1, len(sides.right))) if put is None else put
        return True, record, _ENCODE([version.row[name] for name in sides.keys])

    return sorted(tied, key=place)
