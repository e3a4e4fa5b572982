"""Conversion of the arguments of `join` to an operator."""

from collections.abc import Sequence
from typing import Any

from caraway.datasets.arguments import column_name, column_names, kind
from caraway.datasets.fields import Field
from caraway.dtypes.durations import FOREVER, parse_duration
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.operators import Join, JoinKind, Operator

# A column, by its name or by the field of a dataset.
Name = str | Field
Names = Sequence[Name]


def join_operator(
    left: Operator,
    other: Any,
    how: str,
    ons: tuple[Names | None, Names | None, Names | None],
    within: tuple[str, str],
    fields: Names | None,
) -> Join:
    """Return the operator of a join from the arguments of `Node.join`; `ons` are `on`, `left_on` and `right_on`."""
    if not hasattr(other, "node_operator"):
        raise DefinitionTypeError(f"join: the right side is a dataset, not {kind(other)}")
    if not hasattr(other, "node_spec"):
        raise DefinitionError("join: the right side is a step of the pipeline; it must be a dataset of its own")
    where = f"join with {other.fqn()}"
    if how not in tuple(JoinKind):
        raise DefinitionError(f'{where}: how is "inner" or "left", not {how!r}')
    on, left_on, right_on = (_columns(where, names) for names in ons)
    if (on is None) == (left_on is None and right_on is None) or (left_on is None) != (right_on is None):
        raise DefinitionError(f"{where}: give either on=, or left_on= and right_on=")
    low_us, high_us = _bounds(where, within)
    added = column_names(f"{where}: fields", (), fields) or other.node_schema.values
    return Join(
        left=left,
        right=other.fqn(),
        how=JoinKind(how),
        left_on=on or left_on or (),
        right_on=on or right_on or (),
        within_low_us=low_us,
        within_high_us=high_us,
        fields=tuple(dict.fromkeys(added)),
    )


def _columns(where: str, given: object) -> tuple[str, ...] | None:
    """Return the columns of one side of a join."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)):
        raise DefinitionError(f"{where}: the columns to join on are a list, not {kind(given)}")
    return tuple(column_name(where, name) for name in given)


def _bounds(where: str, within: object) -> tuple[int | None, int]:
    """Return how long before (None: any time) and after a left row a match may be."""
    if not isinstance(within, (tuple, list)) or len(within) != 2 or None in within or within[1] == FOREVER:
        raise DefinitionError(
            f'{where}: within is two durations such as ("1d", "0s"), the first may be "forever"; not {within!r}'
        )
    try:
        return None if within[0] == FOREVER else parse_duration(within[0]), parse_duration(within[1])
    except (DefinitionError, DefinitionTypeError) as error:
        raise DefinitionError(f"{where}: within={within!r}: {error}") from None
