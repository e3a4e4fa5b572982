"""Erased keys, whose rows a dataset neither shows nor accepts any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from caraway.engine_local.tables import Key, key_of
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True)
class Erased:
    """The erased keys of one dataset: for each tuple of key columns by which keys were erased, the erased values."""

    values: Mapping[tuple[str, ...], frozenset[Key]] = field(default_factory=dict)

    def hides(self, row: Mapping[str, object]) -> bool:
        """Return whether a row is erased; `row` needs only the key columns."""
        return any(key_of(row, columns) in keys for columns, keys in self.values.items())


def erasing(spec: DatasetSpec, before: Erased, keys: Sequence[Mapping[str, object]]) -> Erased:
    """Return the erased keys of `before`, and `keys`.

    Raises `InvalidInputError` if a key has no columns, or a column that isn't a key.
    """
    values = dict(before.values)
    for key in keys:
        columns = tuple(sorted(key))
        if not columns or any(name not in spec.keys for name in columns):
            raise InvalidInputError(
                f"dataset {spec.name}: can't erase by {', '.join(columns) or 'nothing'}; its keys are "
                f"{', '.join(spec.keys) or 'none'}"
            )
        values[columns] = values.get(columns, frozenset()) | {key_of(key, columns)}
    return Erased(values)
