"""Erased keys, whose rows a dataset neither shows nor accepts any more.

An erase key is a column of a dataset, in most cases one of its keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from caraway.compute.reference.tables import Key, key_of
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True)
class Erased:
    """The erased keys of one dataset: for each tuple of columns by which keys were erased, the erased values."""

    values: Mapping[tuple[str, ...], frozenset[Key]] = field(default_factory=dict)

    def hides(self, row: Mapping[str, object]) -> bool:
        """Return whether a row is erased; a row that lacks a column isn't erased by it."""
        return any(
            all(name in row for name in columns) and key_of(row, columns) in keys
            for columns, keys in self.values.items()
        )


def erasing(spec: DatasetSpec, before: Erased, keys: Sequence[Mapping[str, object]]) -> Erased:
    """Return the erased keys of `before`, and `keys`.

    Raises `InvalidInputError` if a key has no columns, or a column that is neither a key nor an erase key.
    """
    allowed = dict.fromkeys([*spec.keys, *(field.name for field in spec.fields if field.erase_key)])
    values = dict(before.values)
    for key in keys:
        columns = tuple(sorted(key))
        if not columns or any(name not in allowed for name in columns):
            raise InvalidInputError(
                f"dataset {spec.name}: can't erase by {', '.join(columns) or 'nothing'}; its keys are "
                f"{', '.join(allowed) or 'none'}"
            )
        values[columns] = values.get(columns, frozenset()) | {key_of(key, columns)}
    return Erased(values)
