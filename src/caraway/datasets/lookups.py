"""`Dataset.lookup` as a function whose signature names the keys."""

import inspect
from collections.abc import Sequence
from typing import Any, Protocol, cast

import pandas as pd

from caraway.datasets.fields import Field
from caraway.graph.runtime import DatasetHandle

Found = tuple[pd.DataFrame, pd.Series]


class Lookup(Protocol):
    """The type of a dataset's lookup for type checkers, which don't know the names of the dataset's keys."""

    def __call__(
        self, ts: "pd.Series[Any]", *, fields: Sequence[str | Field] | None = (), **keys: "pd.Series[Any]"
    ) -> "tuple[pd.DataFrame, pd.Series[bool]]":
        """Return the rows that hold for the keys at each time of `ts`, and which of them were found."""
        ...


def lookup_function(handle: DatasetHandle, keys: tuple[str, ...]) -> Lookup:
    """Return the lookup of a dataset: `lookup(ts, *, key=Series, ..., fields=[])`, with a frame and the found rows."""

    def lookup(*args: Any, **named: Any) -> Any:
        return handle.lookup(*args, **named)

    annotations: dict[str, Any] = {"ts": pd.Series, **dict.fromkeys(keys, pd.Series), "fields": list[str]}
    only = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter("ts", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=pd.Series),
        *(inspect.Parameter(key, only, annotation=pd.Series) for key in keys),
        inspect.Parameter("fields", only, default=[], annotation=list[str]),
    ]
    lookup.__doc__ = DatasetHandle.lookup.__doc__
    lookup.__annotations__ = {**annotations, "return": Found}
    lookup.__signature__ = inspect.Signature(parameters, return_annotation=Found)  # type: ignore[attr-defined]
    return cast("Lookup", lookup)
