"""The erase keys of a dataset, and how far an erasure by them goes."""

import msgspec

from caraway.errors import InvalidInputError
from caraway.graph.specs import DatasetSpec, FieldSpec


class Erasure(msgspec.Struct, array_like=True, frozen=True):
    """An erased key: a hash of the values of some columns, which can be computed only with the secret `key_id`."""

    columns: tuple[str, ...]
    key_id: str
    digest: bytes


def erase_key_fields(spec: DatasetSpec) -> tuple[FieldSpec, ...]:
    """Return the fields by which rows of a dataset are erased: keys in the order of the dataset's keys, then others."""
    marked = {field.name: field for field in spec.fields if field.erase_key}
    keys = [marked[name] for name in spec.keys if name in marked]
    return (*keys, *(field for field in marked.values() if not field.key))


def goes_downstream(spec: DatasetSpec, asked: bool | None) -> bool:  # noqa: FBT001 (a value that was asked for, as given)
    """Return whether an erasure in a dataset also reaches everything that is computed from its rows.

    Args:
        spec: The dataset.
        asked: The value that the caller gave; None for the default, which is true only if an erase key isn't a key.

    Raises:
        InvalidInputError: The dataset doesn't allow the value that was given.
    """
    where = f"erase in {spec.name}"
    values = [field.name for field in spec.fields if field.erase_key and not field.key]
    if asked is None:
        return bool(values)
    if asked and spec.pipelines:
        raise InvalidInputError(
            f"{where}: its pipeline {spec.pipelines[0].name} would compute the rows again, so nothing can be erased "
            "downstream of it; erase downstream in the datasets that it is computed from (downstream=True)"
        )
    if not asked and values:
        raise InvalidInputError(
            f"{where}: erase key {', '.join(values)} is no key, so its rows can be erased only together with "
            "everything that is computed from them; leave out downstream=False"
        )
    return asked
