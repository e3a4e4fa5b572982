"""Featuresets over the dataset of a case, written for the product and described for the oracle."""

import warnings
from collections.abc import Callable
from typing import Any

from caraway.expr import col
from caraway.featuresets import Featureset, featureset
from caraway.featuresets import feature as F
from tests.unit.oracle.cases import Case
from tests.unit.oracle.plain import Feature, Row
from tests.unit.oracle.sources import Sides, Table, annotation_of

__owner__ = "oracle@example.com"

NAME = "Asked"
# The defaults of lookups, by type; types without one have none.
DEFAULTS: dict[str, Any] = {"int": 5, "float": 2.5, "str": "unknown"}


@featureset
class Chain:
    """Features of a side that is found by a column of a table."""

    k: str
    j: str = F(Table.j, default="p")
    n: int = F(Table.n, default=9)
    v: int | None = F(Sides.v)
    w: float = F(Sides.w, default=-1.0)
    sum: float = F(col("w") * 0.1 + col("v").fillnull(7) + col("n"))


CHAIN = [
    Feature("j", ("k",), "Table", "j", "p"),
    Feature("n", ("k",), "Table", "n", 9),
    Feature("v", ("j",), "Sides", "v"),
    Feature("w", ("j",), "Sides", "w", -1.0),
    Feature("sum", compute=lambda row: row["w"] * 0.1 + (7 if row["v"] is None else row["v"]) + row["n"]),
]


def asked_of(case: Case) -> tuple[Featureset, list[Feature]]:
    """Return a featureset with each column of the case's dataset, and expressions over these features.

    A third of the columns have a default, by the number that the case has drawn. An aggregate's own default hides it,
    of which the product warns: cases have both, since the oracle says which one is served.
    """
    out = case.datasets[-1]
    types: dict[str, str] = {key: case.types[key] for key in case.keys}
    given: dict[str, Any] = {}
    features = []
    for number, (column, kind) in enumerate(case.types.items()):
        if column in case.keys:
            continue
        name, plainly = f"f_{column}", kind.removesuffix("?")
        default = DEFAULTS.get(plainly) if (case.chosen + number) % 3 == 0 else None
        types[name] = f"{plainly}?" if default is None else plainly
        given[name] = F(getattr(out, column), default=default)
        features.append(Feature(name, case.keys, case.read, column, default))
        if plainly in {"int", "float"}:
            types[f"e_{column}"] = plainly
            given[f"e_{column}"], compute = doubled(name, plainly, is_optional=default is None)
            features.append(Feature(f"e_{column}", compute=compute))
    types["f_at"] = "time?"
    given["f_at"] = F(out.at)
    features.append(Feature("f_at", case.keys, case.read, "at"))
    space = {"__annotations__": {name: annotation_of(kind) for name, kind in types.items()}, "__module__": __name__}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", rf"feature {NAME}\.\w+: default=.* has no effect")
        return featureset(type(NAME, (), space | given)), features


def doubled(name: str, kind: str, *, is_optional: bool) -> tuple[Any, Callable[[Row], Any]]:
    """Return an expression over a number, in which null is replaced if there may be one."""
    nothing: Any = 3 if kind == "int" else 0.5
    operand = col(name).fillnull(nothing) if is_optional else col(name)
    if kind == "int":
        return F(operand * 2 - 1), lambda row: (nothing if row[name] is None else row[name]) * 2 - 1
    return F(operand * 0.1 + 1.0), lambda row: (nothing if row[name] is None else row[name]) * 0.1 + 1.0
