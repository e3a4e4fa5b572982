"""Columns of every type, rows for them and constants, from which random expressions are built."""

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from math import inf
from typing import Any

import orjson
from hypothesis import strategies as st

from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StructType,
    base_type,
    optional,
)
from caraway.dtypes.values import to_json

PRICE = DecimalType(2)
POINT = StructType("Point", (("x", INT), ("y", optional(FLOAT)), ("tags", ListType(STRING))))
LINE = StructType("Line", (("name", optional(STRING)), ("start", optional(POINT)), ("price", PRICE), ("at", DATETIME)))
SCALARS: dict[str, DataType] = {
    "i": INT,
    "f": FLOAT,
    "b": BOOL,
    "s": STRING,
    "t": DATETIME,
    "d": DATE,
    "m": PRICE,
    "y": BYTES,
}
LISTED = {name: SCALARS[name] for name in "ifbst"}
COMPOSITES: dict[str, DataType] = {
    **{f"l{name}": ListType(of) for name, of in LISTED.items()},
    **{f"lo{name}": ListType(optional(of)) for name, of in LISTED.items()},
    "lp": ListType(POINT),
    "di": MapType(INT),
    "dof": MapType(optional(FLOAT)),
    "ds": MapType(STRING),
    "p": POINT,
    "line": LINE,
}
RESTRICTED: dict[str, DataType] = {
    "small": BetweenType(INT, -3, 9),
    "ratio": BetweenType(FLOAT, 0.0, 1.0, strict_max=True),
    "grade": OneOfType(INT, (0, 1, 2, 3)),
    "size": OneOfType(STRING, ("s", "m", "İ")),
    "code": RegexType("[ab]+"),
}
BASES = {**SCALARS, **COMPOSITES}
NULLABLE = {**BASES, "size": RESTRICTED["size"], "small": RESTRICTED["small"], "e": EmbeddingType(2)}
SCHEMA: dict[str, DataType] = {
    **BASES,
    **RESTRICTED,
    "e": EmbeddingType(2),
    **{f"opt_{name}" if len(name) > 1 else f"o{name}": optional(of) for name, of in NULLABLE.items()},
    # Columns of documents and times as text.
    "json": STRING,
    "ojson": optional(STRING),
    "stamp": STRING,
}
#: The types of expressions.
TYPES: list[DataType] = list(BASES.values())

# Between 1900 and 2100 the zone rules of Python and polars agree.
INSTANTS = st.integers(-2_208_988_800_000_000, 4_102_444_800_000_000)
EDGE_INTS = st.sampled_from([0, 1, -1, 2, -7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
EDGE_FLOATS = st.sampled_from([0.0, -0.0, 0.5, -2.5, 1e-5, 1e-7, 1e16, 1e300, 5e-324, inf, -inf, 2.0**63])
# Letters whose case has been stable over versions of Unicode, so no ß-like ones that are new.
TEXTS = st.text(alphabet='aAbBzZ éÉßİıΣσς0,.%_\n"\\😀', max_size=6)  # noqa: RUF001 (on purpose)
KEYS = st.sampled_from(["a", "b", "", "é"])
UNITS_OF_PRICE = st.integers(-(10**28) + 1, 10**28 - 1) | st.integers(-1000, 1000)
# The year 1 and the year 9999 are the ends of Python's calendar.
DAYS = st.integers(-25_000, 50_000) | st.sampled_from([-719_162, 2_932_896, 0, -1])

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: EDGE_INTS | st.integers(-1000, 1000) | st.integers(-(2**63), 2**63 - 1),
    FLOAT: EDGE_FLOATS | st.floats(allow_nan=False),
    BOOL: st.booleans(),
    STRING: TEXTS,
    DATETIME: INSTANTS,
    DATE: DAYS,
    BYTES: st.binary(max_size=4),
    PRICE: UNITS_OF_PRICE.map(lambda units: format(Decimal(units).scaleb(-2), ".2f")),
    RESTRICTED["small"]: st.integers(-3, 9),
    RESTRICTED["ratio"]: st.floats(0, 1, exclude_max=True),
    RESTRICTED["grade"]: st.integers(0, 3),
    RESTRICTED["size"]: st.sampled_from(["s", "m", "İ"]),
    RESTRICTED["code"]: st.text(alphabet="ab", min_size=1, max_size=3),
}


def values(dtype: DataType) -> st.SearchStrategy[Any]:
    """Draw values of a type, in stored form."""
    match dtype:
        case OptionalType(of):
            return st.none() | values(of)
        case ListType(of):
            return st.lists(values(of), max_size=4)
        case EmbeddingType(dim):
            return st.lists(VALUES[FLOAT], min_size=dim, max_size=dim)
        case MapType(of):
            return st.dictionaries(KEYS, values(of), max_size=3).map(lambda entries: dict(sorted(entries.items())))
        case StructType(_, fields):
            return st.tuples(*[values(field) for _, field in fields]).map(list)
        case _:
            return VALUES[dtype]


def finite(dtype: DataType, value: Any) -> bool:
    """Return whether a value has no infinity, which JSON lacks."""
    return b"Infinity" not in orjson.dumps(to_json(dtype)(value))


def json_texts(dtype: DataType) -> st.SearchStrategy[str]:
    """Draw documents that `str.parse` reads as values of a type."""
    found = values(dtype).filter(lambda value: value is None or finite(dtype, value))
    return found.map(lambda value: orjson.dumps(None if value is None else to_json(dtype)(value)).decode())


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.sampled_from([1.5, 1e300, -0.0]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
    max_leaves=6,
).map(lambda value: orjson.dumps(value).decode())
JSON = DOCUMENTS | st.sampled_from(["", "{", "nul", "[1, 2", '{"a": 1.50}', ' {"a" : [1, {"b": "x"}]} '])
PATHS = ["$", "$.a", "$['c d']", "$.a.b", "$[0]", "$.a[1].b", "$[1:3]", "$[*]", "$..a", "$[?(@.a > 1)]", "$[?(@.b)]"]
# The times of this format exist on every clock of the zones without daylight saving.
STAMP_FORMAT = "%Y-%m-%d %H:%M:%S"
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001 (zones come later)
STAMPS = MOMENTS.map(lambda t: t.strftime(STAMP_FORMAT))

_TEXT_COLUMNS = {"json": JSON, "ojson": st.none() | JSON, "stamp": STAMPS}


def rows(names: Collection[str] = SCHEMA.keys()) -> st.SearchStrategy[dict[str, Any]]:
    """Draw rows of the columns of these names, of all if none are given."""
    return st.fixed_dictionaries(
        {name: _TEXT_COLUMNS[name] if name in _TEXT_COLUMNS else values(SCHEMA[name]) for name in names}
    )


def columns_of_base(dtype: DataType) -> list[str]:
    """Return the columns whose values take part in expressions as `dtype`."""
    return [name for name, found in SCHEMA.items() if base_type(found) == dtype]
