"""Random functions of columns, and rows for them."""

import math
import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from caraway.dtypes.types import BOOL, DATETIME, FLOAT, INT, STRING, BetweenType, DataType, ListType, optional

COLUMNS: Mapping[str, DataType] = {
    "i": INT,
    "j": optional(INT),
    "f": FLOAT,
    "g": optional(FLOAT),
    "b": BOOL,
    "c": optional(BOOL),
    "s": STRING,
    "t": optional(STRING),
    "r": BetweenType(INT, 0, 9),
    "l": ListType(INT),
    "at": DATETIME,
}
NAMES: dict[DataType, str] = {INT: "ijr", FLOAT: "fg", BOOL: "bc", STRING: "st"}
INTS = [0, 1, -1, 2, 3, 7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**62)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, math.inf, -math.inf, math.nan, 1e308, 5e-324, float(2**53), 9.3e18]
# The texts keep to letters of Python's version of Unicode: polars and Java know newer ones.
TEXTS = ["", "a", "A", "ß", "ΑΣ", "aΣ b", "İ", "ﬁ", "é", "e\u0301", "😀", "a.c", "ABC"]


@cache
def of(dtype: DataType, depth: int) -> st.SearchStrategy[str]:
    """Return the texts of functions of `df` that return a column of a type."""
    leaf = st.sampled_from([f'df["{name}"]' for name in NAMES[dtype]])
    if depth == 0:
        return leaf
    below = {kind: of(kind, depth - 1) for kind in NAMES}
    ints, floats = st.sampled_from(INTS).map(repr), st.sampled_from([f for f in FLOATS if math.isfinite(f)]).map(repr)
    texts = st.sampled_from(TEXTS).map(repr)
    number = st.one_of(below[INT], below[FLOAT])
    match dtype:
        case _ if dtype == INT:
            made = [
                _infix(below[INT], "+-*", st.one_of(below[INT], ints)),
                _infix(ints, "+-*", below[INT]),
                below[INT].map("(-{})".format),
                _called(below[INT], "fillna", ints),
                _called(below[STRING], "str.len"),
            ]
        case _ if dtype == FLOAT:
            made = [
                _infix(below[FLOAT], "+-*/", st.one_of(number, ints, floats)),
                _infix(below[INT], "+-*", floats),
                _infix(number, "/", st.one_of(number, ints)),
                _infix(ints, "/", number),
                below[FLOAT].map("(-{})".format),
                _called(below[FLOAT], "fillna", st.one_of(ints, floats)),
            ]
        case _ if dtype == BOOL:
            compared = ["<", "<=", ">", ">=", "==", "!="]
            made = [
                _infix(number, compared, st.one_of(number, ints, floats)),
                _infix(floats, compared, number),
                _infix(below[STRING], compared, st.one_of(below[STRING], texts)),
                _infix(below[BOOL], ["==", "!=", "&", "|"], st.one_of(below[BOOL], st.sampled_from(["True", "False"]))),
                below[BOOL].map("(~{})".format),
                _called(below[BOOL], "fillna", st.sampled_from(["True", "False"])),
                st.one_of(number, below[STRING], below[BOOL]).flatmap(
                    lambda column: st.sampled_from([f"{column}.{name}()" for name in ("isnull", "notnull", "isna")])
                ),
                _called(below[STRING], "str.contains", texts.map("{}, regex=False".format)),
                _called(below[STRING], "str.startswith", texts),
            ]
        case _:
            made = [_called(below[STRING], name) for name in ("str.lower", "str.upper")]
            made.append(_called(below[STRING], "fillna", texts))
    return st.one_of(leaf, *made)


def _infix(left: st.SearchStrategy[str], operators: Sequence[str], right: st.SearchStrategy[str]) -> Any:
    return st.tuples(left, st.sampled_from(operators), right).map(lambda parts: f"({' '.join(parts)})")


def _called(column: st.SearchStrategy[str], name: str, argument: st.SearchStrategy[str] | None = None) -> Any:
    return st.tuples(column, st.just("") if argument is None else argument).map(
        lambda parts: f"{parts[0]}.{name}({parts[1]})"
    )


def rows_of(seed: int, count: int = 25) -> dict[str, list[Any]]:
    rng = random.Random(seed)
    values: dict[DataType, list[Any]] = {INT: INTS, FLOAT: FLOATS, BOOL: [True, False], STRING: TEXTS}
    found: dict[str, list[Any]] = {
        "l": [[1]] * count,
        "at": [0] * count,
        "r": [rng.randrange(10) for _ in range(count)],
    }
    for kind, names in NAMES.items():
        plain, nullable = names[0], names[1]
        found[plain] = [rng.choice(values[kind]) for _ in range(count)]
        found[nullable] = [rng.choice([None, *values[kind]]) for _ in range(count)]
    return {name: found[name] for name in COLUMNS}
