"""The engine: datasets in memory, every derived one up to date after each call."""

from collections.abc import Collection, Mapping, Sequence

from caraway.engine_local.changes import Change
from caraway.graph.specs import DatasetSpec


class LocalEngine:
    """The datasets of one branch, in memory: all rows ever, every derived dataset up to date after each call."""

    def __init__(self, datasets: Sequence[DatasetSpec] = ()) -> None:
        """Take the datasets of a branch.

        Args:
            datasets: Specs after the selection of an environment; each has at most one pipeline.
        """
        raise NotImplementedError

    def replace_datasets(self, datasets: Sequence[DatasetSpec], *, keep: Collection[str]) -> None:
        """Go over to other datasets; the data of `keep` stays, others start empty, derived ones are recomputed."""
        raise NotImplementedError

    def append(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows to a dataset without a pipeline: upserts if it has keys.

        Args:
            dataset: Its name.
            rows: Typed rows in stored form.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset is derived, or a user's function failed; then nothing is stored.
        """
        raise NotImplementedError

    def apply_changes(self, dataset: str, changes: Sequence[Change]) -> None:
        """Add inserts and deletes with event times; see `append`."""
        raise NotImplementedError

    def put_derived(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Replace a derived dataset's content until its upstream changes next; feeds what lies downstream."""
        raise NotImplementedError

    def erase(self, dataset: str, keys: Sequence[Mapping[str, object]]) -> None:
        """Remove all rows with these keys, in the past and to come."""
        raise NotImplementedError

    def lookup(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: int | Sequence[int], columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read rows of a keyed dataset as of a time, that time included.

        Args:
            dataset: Its name.
            keys: In stored form, in the order of the dataset's keys.
            at_us: One time for all keys, or one for each.
            columns: Which columns to read; keys and time stamp may be among them.

        Returns:
            A list for each column, and whether each key was found.
        """
        raise NotImplementedError

    def rows(self, dataset: str) -> list[dict[str, object]]:
        """Return the stored frame: all events, all versions, the expiry rows of continuous windows."""
        raise NotImplementedError

    def copy(self) -> "LocalEngine":
        """Return an engine with the same datasets and data that goes its own way from here on; cheap."""
        raise NotImplementedError
