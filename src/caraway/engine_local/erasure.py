"""Erased keys: rows that a dataset doesn't show and doesn't take any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from caraway.engine_local.tables import Key, key_of
from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True)
class Erased:
    """What was erased of one dataset: values of some of its key columns, by the columns."""

    values: Mapping[tuple[str, ...], frozenset[Key]] = field(default_factory=dict)

    def hides(self, row: Mapping[str, object]) -> bool:
        """Tell whether a row, of which the keys are enough, was erased."""
        return any(key_of(row, columns) in keys for columns, keys in self.values.items())


def erasing(spec: DatasetSpec, before: Erased, keys: Sequence[Mapping[str, object]]) -> Erased:
    """Add keys to what was erased before.

    Raises:
        InvalidInputError: One names no column, or one that is no key.
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
