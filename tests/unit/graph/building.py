"""Short ways to make datasets and featuresets for tests of graphs and plans, and to check what errors tell."""

from collections.abc import Collection, Mapping
from typing import Any

from caraway.dtypes.types import DataType
from caraway.graph.operators import Join, JoinKind, Operator
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, FeatureSpec, FieldSpec


def dataset(
    name: str, columns: Mapping[str, DataType], *, keys: Collection[str] = (), timestamp: str = "at", **parts: Any
) -> DatasetSpec:
    """Make a dataset of some columns; `parts` are its other parts, of which it has none by default."""
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in keys, timestamp=column == timestamp)
        for column, dtype in columns.items()
    )
    given = {"version": 1, "history_us": 0, "index": None, **parts}
    return DatasetSpec(name=name, fields=fields, **given)


def featureset(name: str, features: Mapping[str, DataType], *extractors: Extractor, **parts: Any) -> FeaturesetSpec:
    """Make a featureset of some features; `parts` are its other parts, of which it has none by default."""
    made = tuple(FeatureSpec(name=feature, dtype=dtype) for feature, dtype in features.items())
    return FeaturesetSpec(name=name, features=made, extractors=extractors, **parts)


def join(left: Operator, right: str, on: str, *fields: str, right_on: str | None = None) -> Join:
    """Make an inner join by one column, of rows of any age."""
    bounds: dict[str, Any] = {"within_low_us": None, "within_high_us": 0, "fields": fields}
    return Join(left=left, right=right, how=JoinKind.INNER, left_on=(on,), right_on=(right_on or on,), **bounds)


def facts_of(said: str) -> list[str]:
    """Return the facts that a message has, given them with dots between."""
    return said.split(" ... ")


def check_told(error: BaseException, said: str) -> None:
    """Check that an error tells all facts of `said`, which has dots between them."""
    missing = [fact for fact in facts_of(said) if fact not in str(error)]
    assert not missing, str(error)
