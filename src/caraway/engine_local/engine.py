"""The engine: datasets in memory, every derived one up to date after each call."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import TopologicalSorter

from caraway.engine_local.changes import SourceChange, arrive, events, insertions, table_of
from caraway.engine_local.erasure import Erased, erasing
from caraway.engine_local.pipelines import Run, compile_pipeline, defaults_of
from caraway.engine_local.tables import Event, Table, key_of
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.specs import DatasetSpec

NOTHING_ERASED = Erased()


class LocalEngine:
    """The datasets of one branch, in memory: all rows ever, every derived dataset up to date after each call.

    What is held never changes in place, so that a copy shares it, and so that a call that fails has changed nothing.
    """

    def __init__(self, datasets: Sequence[DatasetSpec] = ()) -> None:
        """Take the datasets of a branch.

        Args:
            datasets: Specs after the selection of an environment; each has at most one pipeline.
        """
        self._specs: dict[str, DatasetSpec] = {}
        # What derived datasets are computed by, each after those that it reads.
        self._runs: dict[str, Run] = {}
        # What was logged, in order; of derived datasets what was put there and holds until their next computation.
        self._events: dict[str, list[Event]] = {}
        self._tables: dict[str, Table] = {}
        self._erased: dict[str, Erased] = {}
        self.replace_datasets(datasets, keep=())

    def replace_datasets(self, datasets: Sequence[DatasetSpec], *, keep: Collection[str]) -> None:
        """Go over to other datasets; the data of `keep` stays, others start empty, derived ones are recomputed."""
        specs = {spec.name: spec for spec in datasets}
        runs = {}
        for name in _in_order(datasets):
            if pipelines := specs[name].pipelines:
                runs[name] = compile_pipeline(specs[name], pipelines[0], specs)
        events = {
            name: logged
            for name, logged in self._events.items()
            if name in keep and name in specs and (name in runs) == (name in self._runs)
        }
        tables = {name: table_of(spec, events.get(name, [])) for name, spec in specs.items()}
        for name, run in runs.items():
            if name not in events:
                tables[name] = run(tables.__getitem__)
        self._erased = {name: erased for name, erased in self._erased.items() if name in keep and name in specs}
        self._specs, self._runs, self._events, self._tables = specs, runs, events, tables

    def append(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows to a dataset without a pipeline: upserts if it has keys.

        Args:
            dataset: Its name.
            rows: Typed rows in stored form, with all columns; more are ignored.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset is derived, a column is missing, or a pipeline failed; nothing is stored.
        """
        self._add(dataset, insertions(self._source(dataset), rows))

    def apply_changes(self, dataset: str, changes: Sequence[SourceChange]) -> None:
        """Add inserts and deletes with event times; see `append`.

        Raises:
            InvalidInputError: As in `append`; or a row of a keyless dataset is to be deleted.
        """
        self._add(dataset, events(self._source(dataset), changes))

    def put_derived(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Replace a derived dataset's content until its upstream changes next; feeds what lies downstream.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset has no pipeline, a column is missing, or a pipeline downstream failed.
        """
        spec = self._spec(dataset)
        if dataset not in self._runs:
            raise InvalidInputError(f"dataset {dataset} has no pipeline whose output could be replaced; append to it")
        self._hold(dataset, arrive([], self._admitted(dataset, insertions(spec, rows))))

    def erase(self, dataset: str, keys: Sequence[Mapping[str, object]]) -> None:
        """Remove all rows with these keys, in the past and to come; nothing changes downstream.

        Args:
            dataset: Its name.
            keys: Values in stored form of some key columns, by name: rows that have all of them are erased.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: A column that isn't a key.
        """
        self._erased[dataset] = erasing(self._spec(dataset), self._erased.get(dataset, NOTHING_ERASED), keys)

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
            A list for each column, and whether each key was found. Where it wasn't, keys are those that were asked for
            (null if the dataset has no data at all), values null, or the default of a terminal aggregate.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: It has no keys, a column is unknown, or a key has too few or too many parts.
        """
        spec = self._spec(dataset)
        _check_lookup(spec, keys, columns)
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        found = [self._find(spec, key, time_us) for key, time_us in zip(keys, times, strict=True)]
        missing = dict.fromkeys((field.name for field in spec.fields), None) | defaults_of(spec)
        echo = not self._tables[dataset].empty
        rows = [
            row if row is not None else {**missing, **(dict(zip(spec.keys, key, strict=True)) if echo else {})}
            for key, row in zip(keys, found, strict=True)
        ]
        return [[row[name] for row in rows] for name in columns], [row is not None for row in found]

    def rows(self, dataset: str) -> list[dict[str, object]]:
        """Return the stored frame: all events, all versions, the expiry rows of continuous windows.

        Raises:
            UnknownEntityError: No such dataset.
        """
        names = [field.name for field in self._spec(dataset).fields]
        erased = self._erased.get(dataset, NOTHING_ERASED)
        with _naming(dataset):
            rows = [version.row for version in self._tables[dataset].versions]
        return [{name: row[name] for name in names} for row in rows if not erased.hides(row)]

    def copy(self) -> "LocalEngine":
        """Return an engine with the same datasets and data that goes its own way from here on; cheap."""
        other = LocalEngine()
        other._specs, other._runs = self._specs, self._runs
        other._events, other._tables, other._erased = dict(self._events), dict(self._tables), dict(self._erased)
        return other

    def _spec(self, dataset: str) -> DatasetSpec:
        spec = self._specs.get(dataset)
        if spec is None:
            raise UnknownEntityError(f"unknown dataset {dataset}; datasets: {', '.join(self._specs) or 'none'}")
        return spec

    def _source(self, dataset: str) -> DatasetSpec:
        spec = self._spec(dataset)
        if dataset in self._runs:
            raise InvalidInputError(
                f"dataset {dataset} is derived by pipeline {spec.pipelines[0].name}; log to what it is derived from"
            )
        return spec

    def _add(self, dataset: str, arriving: Sequence[Event]) -> None:
        if admitted := self._admitted(dataset, arriving):
            self._hold(dataset, arrive(self._events.get(dataset, []), admitted))

    def _admitted(self, dataset: str, arriving: Sequence[Event]) -> list[Event]:
        erased = self._erased.get(dataset, NOTHING_ERASED)
        return [event for event in arriving if not erased.hides(event.row)]

    def _hold(self, dataset: str, logged: list[Event]) -> None:
        """Give a dataset its events and compute all that depends on it, or else change nothing."""
        tables = {**self._tables, dataset: table_of(self._specs[dataset], logged)}
        downstream = self._downstream(dataset)
        for name in downstream:
            tables[name] = self._runs[name](tables.__getitem__)
        self._tables = tables
        kept = {name: held for name, held in self._events.items() if name not in downstream}
        self._events = {**kept, dataset: logged}

    def _downstream(self, dataset: str) -> list[str]:
        """Name all that depends on a dataset, each after what it reads."""
        changed = {dataset}
        for name in self._runs:
            if name != dataset and not changed.isdisjoint(_inputs(self._specs[name])):
                changed.add(name)
        return [name for name in self._runs if name in changed and name != dataset]

    def _find(self, spec: DatasetSpec, key: tuple[object, ...], at_us: int) -> Mapping[str, object] | None:
        parts = dict(zip(spec.keys, key, strict=True))
        if self._erased.get(spec.name, NOTHING_ERASED).hides(parts):
            return None
        with _naming(spec.name):
            version = self._tables[spec.name].find(key_of(parts, spec.keys), at_us)
        return None if version is None else version.row


@contextmanager
def _naming(dataset: str) -> Iterator[None]:
    """Name the dataset in errors of values that are computed as they are read."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"dataset {dataset}: {error}") from error


def _inputs(spec: DatasetSpec) -> Iterable[str]:
    return [name for pipeline in spec.pipelines for name in pipeline.inputs]


def _in_order(datasets: Sequence[DatasetSpec]) -> list[str]:
    """Order datasets so that each comes after those that it reads."""
    names = {spec.name for spec in datasets}
    return [name for name in TopologicalSorter({s.name: _inputs(s) for s in datasets}).static_order() if name in names]


def _check_lookup(spec: DatasetSpec, keys: Sequence[tuple[object, ...]], columns: Sequence[str]) -> None:
    if not spec.keys:
        raise InvalidInputError(f"dataset {spec.name} has no keys, so that nothing can be looked up in it")
    names = [field.name for field in spec.fields]
    if unknown := [name for name in columns if name not in names]:
        raise InvalidInputError(f"dataset {spec.name} has no column {', '.join(unknown)}; columns: {', '.join(names)}")
    if wrong := [key for key in keys if len(key) != len(spec.keys)]:
        raise InvalidInputError(f"dataset {spec.name} has the keys {', '.join(spec.keys)}; {wrong[0]!r} isn't one each")
