"""Columns of a dataset."""

from collections.abc import Sequence
from typing import Any

from caraway.dtypes.annotations import annotation_of
from caraway.dtypes.types import DataType, is_optional
from caraway.errors import DefinitionError
from caraway.graph.drift import Drift
from caraway.graph.specs import FieldSpec, Metadata
from caraway.lib.metadata import metadata_of_arguments


class FieldMarker:
    """The value of `field(...)` in a class body, from which the dataset makes a `Field`."""

    def __init__(self, *, key: bool, timestamp: bool, erase_key: bool) -> None:
        self.key = key
        self.timestamp = timestamp
        self.erase_key = erase_key
        self.metadata = Metadata()

    def meta(
        self,
        owner: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        *,
        deprecated: bool = False,
        deleted: bool = False,
        drift: Drift | None = None,
    ) -> Any:
        """Attach metadata to the field.

        `drift` has the thresholds from which a change of the field's values is an alarm
        (docs/guides/monitoring.md). With it, the dataset is profiled.

        Raises:
            DefinitionError: The owner isn't an email address, `deprecated` or `deleted` is true, or a threshold is
                negative.
        """
        if deprecated or deleted:
            raise DefinitionError(
                "a field of a dataset can't be deprecated or deleted; raise the dataset's version instead"
            )
        self.metadata = metadata_of_arguments(owner, description, tags, drift=drift)
        return self


def field(key: bool = False, timestamp: bool = False, erase_key: bool = False) -> Any:
    """Mark a column as key or as the timestamp.

    Args:
        key: The column is one of the dataset's keys.
        timestamp: The column is the event time; needed if the dataset has several datetime columns.
        erase_key: The column is one of those by which rows are erased. A column that isn't a key can be one only in a
            dataset whose rows come from a source.

    Raises:
        DefinitionError: The marks contradict each other.
    """
    if erase_key and timestamp:
        raise DefinitionError("field: the timestamp can't be an erase key")
    if key and timestamp:
        raise DefinitionError("field: a column can't be key and timestamp")
    return FieldMarker(key=key, timestamp=timestamp, erase_key=erase_key)


class Field:
    """A column of a dataset, as `Dataset.column`."""

    def __init__(self, dataset: Any, spec: FieldSpec) -> None:
        self.dataset = dataset
        self.spec = spec
        self.name = spec.name
        self.key = spec.key
        self.timestamp = spec.timestamp

    @property
    def data_type(self) -> DataType:
        """Type of the column."""
        return self.spec.dtype

    @property
    def dtype(self) -> Any:
        """Type of the column as an annotation."""
        return annotation_of(self.spec.dtype)

    @property
    def dataset_name(self) -> str:
        """The name of the dataset."""
        return str(self.dataset.fqn())

    def fqn(self) -> str:
        """Return the full name, `Dataset.column`."""
        return f"{self.dataset_name}.{self.name}"

    def desc(self) -> str:
        """Return the description."""
        return self.spec.metadata.description

    def is_optional(self) -> bool:
        """Return whether the column may be null."""
        return is_optional(self.spec.dtype)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.fqn()

    def __reduce__(self) -> tuple[Any, ...]:
        # In a pickled function a field is replaced by its name.
        return (str, (self.name,))
