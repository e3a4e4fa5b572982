"""The in-process engine, which holds datasets in memory."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import TopologicalSorter

from caraway.compute.reference.aggregates.grouping import Clock, next_closing_us, present_us
from caraway.compute.reference.changes import SourceChange, arrive, events, insertions, table_of
from caraway.compute.reference.erasure import Erased, erasing
from caraway.compute.reference.pipelines import Run, compile_pipeline
from caraway.compute.reference.tables import Event, Table, key_of
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import absent_values, aggregates_in

NOTHING_ERASED = Erased()


class LocalEngine:
    """The datasets of one branch, in memory, with all rows ever; derived datasets are up to date after each call.

    Datasets that depend on windows which close by the clock are computed again when they are read, if the clock has
    closed another one.

    Held objects never change in place, so that a copy can share them, and a call that fails has changed nothing.
    """

    def __init__(self, datasets: Sequence[DatasetSpec] = (), *, clock: Clock = present_us) -> None:
        """Hold the datasets of a branch.

        Args:
            datasets: Specs after the selection of an environment; each has at most one pipeline.
            clock: Returns the present in microseconds.
        """
        self._clock = clock
        # The time at which the clock closes the next window; None if no windows close by the clock.
        self._due_us: int | None = None
        self._specs: dict[str, DatasetSpec] = {}
        # The functions that compute derived datasets, each after the datasets that it reads.
        self._runs: dict[str, Run] = {}
        # The logged events of each dataset, in order of event time and then of arrival. A derived dataset, which a
        # pipeline computes, has none. An exception is a derived dataset whose rows `put_derived` has replaced: it has
        # events until its inputs change and the pipeline computes it again.
        self._events: dict[str, list[Event]] = {}
        self._tables: dict[str, Table] = {}
        self._erased: dict[str, Erased] = {}
        self.replace_datasets(datasets, keep=())

    def replace_datasets(self, datasets: Sequence[DatasetSpec], *, keep: Collection[str]) -> None:
        """Replace the datasets; those in `keep` keep their data, others start empty, derived ones are recomputed."""
        specs = {spec.name: spec for spec in datasets}
        due_us, runs = _next_closing_us(datasets, self._clock()), {}
        for name in _in_order(datasets):
            if pipelines := specs[name].pipelines:
                runs[name] = compile_pipeline(specs[name], pipelines[0], specs, self._clock)
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
        self._due_us = due_us

    def append(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows to a dataset without a pipeline; with keys they are upserts.

        Args:
            dataset: Its name.
            rows: Typed rows in stored form, with all columns; further columns are ignored.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset is derived, a column is missing, or a pipeline failed; then nothing is
                stored.
        """
        self._add(dataset, insertions(self._source(dataset), rows))

    def apply_changes(self, dataset: str, changes: Sequence[SourceChange]) -> None:
        """Add inserts and deletes with event times; see `append`.

        Raises:
            InvalidInputError: As in `append`; or a change deletes a row of a keyless dataset.
        """
        self._add(dataset, events(self._source(dataset), changes))

    def put_derived(self, dataset: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Replace a derived dataset's content until its inputs change next, and compute the datasets downstream.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset has no pipeline, a column is missing, or a pipeline downstream failed.
        """
        spec = self._spec(dataset)
        if dataset not in self._runs:
            raise InvalidInputError(f"dataset {dataset} has no pipeline whose output could be replaced; append to it")
        self._hold(dataset, arrive([], self._admitted(dataset, insertions(spec, rows))))

    def erase(self, dataset: str, keys: Sequence[Mapping[str, object]], *, downstream: bool = False) -> None:
        """Remove all past and future rows with these keys.

        Args:
            dataset: Its name.
            keys: Values of some key columns, by name, in stored form; rows with all of these values are erased.
            downstream: The datasets that are computed from it are computed again, as if the rows had never come.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: A column isn't a key, or something is computed again and a pipeline fails, or the
                dataset itself is computed by a pipeline.
        """
        spec = self._source(dataset) if downstream else self._spec(dataset)
        erased = erasing(spec, self._erased.get(dataset, NOTHING_ERASED), keys)
        if downstream:
            self._hold(dataset, [event for event in self._events.get(dataset, []) if not erased.hides(event.row)])
        self._erased[dataset] = erased

    def lookup(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: int | Sequence[int], columns: Sequence[str]
    ) -> tuple[list[list[object]], list[bool]]:
        """Read rows of a keyed dataset as of a time, that time included.

        Args:
            dataset: Its name.
            keys: The keys in stored form, each in the order of the dataset's key columns.
            at_us: A time for all keys, or one for each.
            columns: The columns to read; keys and time stamp may be among them.

        Returns:
            A list for each column, and for each key whether it was found. For a key that wasn't found, key columns have
            the key itself (null if the dataset has no data at all), and others null or the default of a terminal
            aggregate.

        Raises:
            UnknownEntityError: No such dataset.
            InvalidInputError: The dataset has no keys, a column is unknown, or a key has too few or too many parts.
        """
        spec = self._spec(dataset)
        _check_lookup(spec, keys, columns)
        self._close_windows()
        times = [at_us] * len(keys) if isinstance(at_us, int) else at_us
        found = self._find_all(spec, keys, times)
        missing = dict.fromkeys((field.name for field in spec.fields), None) | absent_values(spec)
        echo = not self._tables[dataset].empty
        rows = [
            row if row is not None else {**missing, **(dict(zip(spec.keys, key, strict=True)) if echo else {})}
            for key, row in zip(keys, found, strict=True)
        ]
        return [[row[name] for row in rows] for name in columns], [row is not None for row in found]

    def rows(self, dataset: str) -> list[dict[str, object]]:
        """Return all rows that a dataset ever has: its events or versions.

        Those of an aggregation include the versions that begin when rows leave its windows, even if that is later.

        Raises:
            UnknownEntityError: No such dataset.
        """
        names = [field.name for field in self._spec(dataset).fields]
        erased = self._erased.get(dataset, NOTHING_ERASED)
        self._close_windows()
        with _naming(dataset):
            rows = [version.row for version in self._tables[dataset].versions]
        return [{name: row[name] for name in names} for row in rows if not erased.hides(row)]

    def table(self, dataset: str) -> Table:
        """Return the content of a dataset, with the rows of keys that were erased in it alone.

        Raises:
            UnknownEntityError: No such dataset.
        """
        self._close_windows()
        return self._tables[self._spec(dataset).name]

    def is_computed(self, dataset: str) -> bool:
        """Return whether a pipeline has computed the content of a dataset; see `put_derived`."""
        return dataset in self._runs and dataset not in self._events

    def hides(self, dataset: str, row: Mapping[str, object]) -> bool:
        """Return whether a row, or a key, of a dataset is erased."""
        return self._erased.get(dataset, NOTHING_ERASED).hides(row)

    def now_us(self) -> int:
        """Return the present in microseconds, by which windows close that close by the clock."""
        return self._clock()

    def copy(self) -> "LocalEngine":
        """Return an independent engine with the same datasets and data, which it shares until they change."""
        other = LocalEngine(clock=self._clock)
        other._specs, other._runs, other._due_us = self._specs, self._runs, self._due_us
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
        """Set the events of a dataset and compute all datasets that depend on it; on an error, change nothing."""
        tables = {**self._tables, dataset: table_of(self._specs[dataset], logged)}
        downstream = self._downstream({dataset})
        for name in downstream:
            tables[name] = self._runs[name](tables.__getitem__)
        self._tables = tables
        kept = {name: held for name, held in self._events.items() if name not in downstream}
        self._events = {**kept, dataset: logged}

    def _close_windows(self) -> None:
        """Compute the datasets anew that depend on windows which the clock has closed since they were computed."""
        if self._due_us is None or (now_us := self._clock()) < self._due_us:
            return
        timed = {name for name in self._runs if _next_closing_us([self._specs[name]], now_us) is not None}
        downstream, tables = self._downstream(timed), dict(self._tables)
        for name in self._runs:
            if (name in timed or name in downstream) and name not in self._events:
                tables[name] = self._runs[name](tables.__getitem__)
        self._tables, self._due_us = tables, _next_closing_us(self._specs.values(), now_us)

    def _downstream(self, datasets: Collection[str]) -> list[str]:
        """Return the datasets that depend on some datasets, each after those that it reads."""
        changed = set(datasets)
        for name in self._runs:
            if name not in datasets and not changed.isdisjoint(_inputs(self._specs[name])):
                changed.add(name)
        return [name for name in self._runs if name in changed and name not in datasets]

    def _find_all(
        self, spec: DatasetSpec, keys: Sequence[tuple[object, ...]], times_us: Sequence[int]
    ) -> list[Mapping[str, object] | None]:
        erased = self._erased.get(spec.name, NOTHING_ERASED)
        parts = [dict(zip(spec.keys, key, strict=True)) for key in keys]
        asked = [(key_of(key, spec.keys), at_us) for key, at_us in zip(parts, times_us, strict=True)]
        with _naming(spec.name):
            found = self._tables[spec.name].find_all(asked)
        return [
            None if version is None or erased.hides(key) else version.row
            for key, version in zip(parts, found, strict=True)
        ]


@contextmanager
def _naming(dataset: str) -> Iterator[None]:
    """Add the dataset's name to errors of values that are computed when they are read."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"dataset {dataset}: {error}") from error


def _next_closing_us(specs: Iterable[DatasetSpec], at_us: int) -> int | None:
    """Return when the clock closes the next window of some datasets; None if no windows close by the clock."""
    operators = (pipeline.operator for spec in specs for pipeline in spec.pipelines)
    found = (next_closing_us(each, at_us) for operator in operators for each in aggregates_in(operator))
    return min((closing_us for closing_us in found if closing_us is not None), default=None)


def _inputs(spec: DatasetSpec) -> Iterable[str]:
    return [name for pipeline in spec.pipelines for name in pipeline.inputs]


def _in_order(datasets: Sequence[DatasetSpec]) -> list[str]:
    """Return the datasets in an order in which each comes after those that it reads."""
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
