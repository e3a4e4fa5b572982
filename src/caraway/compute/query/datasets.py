"""Reads of a dataset by key, for `POST /dataset/{name}/lookup` and for lookups inside extractors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from caraway.compute.query.catalog import Catalog, listed
from caraway.compute.query.lookups import read_keys, require_index
from caraway.compute.query.model import Instants, QueryReader
from caraway.dtypes.series import key_values, plain_values, result_series
from caraway.dtypes.types import DataType, optional
from caraway.errors import InvalidInputError, meant
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The answer to a read: names, types and columns (in stored form) of fields, and which keys were found."""

    fields: tuple[tuple[str, DataType], ...]
    columns: list[list[object]]
    found: list[bool]


def keyed_dataset(catalog: Catalog, name: str, given: Sequence[str]) -> DatasetSpec:
    """Return a dataset that can be looked up by exactly the keys in `given`.

    Raises:
        UnknownEntityError: There is no such dataset.
        InvalidInputError: The dataset has no keys, or other keys.
    """
    spec = catalog.dataset(name)
    if not spec.keys:
        raise InvalidInputError(f"dataset {name} has no keys, so its rows can't be looked up")
    if missing := [key for key in spec.keys if key not in given]:
        raise InvalidInputError(f"lookup in {name}: key {missing[0]!r} is missing; {listed('keys', spec.keys)}")
    if extra := [key for key in given if key not in spec.keys]:
        raise InvalidInputError(f"lookup in {name}: {extra[0]!r} isn't a key; {listed('keys', spec.keys)}")
    return spec


def read_rows(
    catalog: Catalog,
    reader: QueryReader,
    spec: DatasetSpec,
    keys: Mapping[str, Sequence[object]],
    *,
    at: Instants,
    fields: Sequence[str],
    past: bool,
) -> FoundRows:
    """Read the rows of `keys` (stored form, a column for each key) as of `at`.

    Raises `InvalidInputError` if there is no such field, or the dataset lacks the index that the read needs.
    """
    if spec.index is None:
        raise InvalidInputError(f"dataset {spec.name} has no index, so its rows can't be looked up; declare @index")
    require_index(spec.name, spec.index, past=past)
    by_name = {field.name: field for field in spec.fields}
    for name in fields:
        if name not in by_name:
            raise InvalidInputError(
                f"dataset {spec.name} has no field {name!r}{meant(name, by_name)}; {listed('fields', by_name)}"
            )
    wanted = tuple(by_name[name] for name in fields) or spec.fields
    ordered = [keys[name] for name in spec.keys]
    names = [field.name for field in wanted]
    columns, found = read_keys(reader, spec.name, ordered, at=at, fields=names, absent=catalog.absent[spec.name])
    for position, parts in enumerate(zip(*ordered, strict=True)):
        if None in parts:
            # A key with a null in it wasn't read, so the values of its other parts aren't in the answer yet.
            for name, column in zip(names, columns, strict=True):
                if name in keys:
                    column[position] = keys[name][position]
    return FoundRows(tuple((field.name, field.dtype) for field in wanted), columns, found)


@dataclass(frozen=True, slots=True)
class Question:
    """A lookup by user code, as sent between processes. Missing keys are None, and so is `at` if a time is missing."""

    dataset: str
    at: list[int] | None
    keys: dict[str, list[object]]
    fields: tuple[str, ...]


def question(dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]) -> Question:
    """Convert the arguments of a lookup from pandas; see `caraway.graph.runtime.LookupProvider`."""
    missing = ts.isna().any()
    at = None if missing else pd.to_datetime(ts, utc=True).to_numpy(dtype="datetime64[us]").astype("int64").tolist()
    return Question(dataset, at, {str(name): plain_values(keys[name]) for name in keys.columns}, tuple(fields))


def frames(found: FoundRows) -> "tuple[pd.DataFrame, pd.Series[bool]]":
    """Convert an answer to pandas, for user code."""
    index = pd.RangeIndex(len(found.found))
    frame = pd.DataFrame(
        {
            name: result_series(column, optional(dtype), name)
            for (name, dtype), column in zip(found.fields, found.columns, strict=True)
        },
        index=index,
    )
    return frame, pd.Series(found.found, index=index, name="found", dtype=bool)


class DatasetLookups:
    """The provider behind `Dataset.lookup`."""

    def __init__(
        self,
        catalog: Catalog,
        reader: QueryReader,
        *,
        past: bool,
        extractor: str = "",
        allowed: Sequence[str] | None = None,
    ) -> None:
        """Look up rows in datasets of `catalog`, for an extractor that may read those that are `allowed` (None: all).

        `past` is true if the caller of the query chose the times, which needs an offline index.
        """
        self.asks_others = reader.asks_others
        self._catalog = catalog
        self._reader = reader
        self._extractor = extractor
        self._allowed = allowed
        self._past = past

    def __call__(
        self, dataset: str, ts: "pd.Series[Any]", keys: pd.DataFrame, fields: Sequence[str]
    ) -> "tuple[pd.DataFrame, pd.Series[bool]]":
        """Look rows up as of `ts`; see `caraway.graph.runtime.LookupProvider`."""
        return frames(self.answer(question(dataset, ts, keys, fields)))

    def answer(self, asked: Question) -> FoundRows:
        """Look rows up.

        Raises `InvalidInputError` if the extractor may not look up the dataset, or if the dataset, a key or a field
        doesn't exist.
        """
        dataset = asked.dataset
        if self._allowed is not None and dataset not in self._allowed:
            declared = ", ".join(self._allowed) or "none"
            raise InvalidInputError(
                f"extractor {self._extractor} looks up {dataset}, which isn't among its deps ({declared}); "
                f"add it: @extractor(deps=[{dataset}])"
            )
        if dataset not in self._catalog.datasets:
            raise InvalidInputError(
                f"lookup in {dataset}: the dataset isn't committed; {listed('datasets', self._catalog.datasets)}"
            )
        spec = keyed_dataset(self._catalog, dataset, tuple(asked.keys))
        types = {field.name: field.dtype for field in spec.fields}
        values = {name: key_values(column, types[name], name=name) for name, column in asked.keys.items()}
        times = asked.at
        if times is None:
            raise InvalidInputError(f"lookup in {dataset}: ts holds nulls; each row needs a time")
        # If all rows have the same instant, it is given once: the reader then reads equal keys only once.
        at: Instants = times[0] if times and times.count(times[0]) == len(times) else times
        return read_rows(self._catalog, self._reader, spec, values, at=at, fields=asked.fields, past=self._past)
