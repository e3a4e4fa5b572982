"""Random values of columns in stored form: few of them, so that keys meet, and the awkward ones among them."""

import math
from datetime import UTC, datetime
from random import Random
from typing import Any

from caraway.dtypes.types import (
    BetweenType,
    BoolType,
    BytesType,
    DataType,
    DatetimeType,
    DateType,
    DecimalType,
    EmbeddingType,
    FloatType,
    IntType,
    ListType,
    MapType,
    OneOfType,
    OptionalType,
    RegexType,
    StringType,
    StructType,
)

SECOND = 1_000_000
DAY = 86_400 * SECOND
BASE = round(datetime(2024, 2, 28, 23, tzinfo=UTC).timestamp()) * SECOND
# Zone rules and calendars agree between these two years in all engines.
FAR_PAST = round(datetime(1901, 1, 1, tzinfo=UTC).timestamp()) * SECOND + 1
FAR_FUTURE = round(datetime(2098, 12, 31, tzinfo=UTC).timestamp()) * SECOND - 1

TEXTS = ["a", "b", "c", "A", "", "ключ", "🦆", "é", "e\u0301", " a", "a\x00b", "ß,ß"]
INTS = [0, 1, -1, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.1, 0.2, 0.3, -0.5, 1e16, -1e16, 1.0, 1e-300, 5e-324, 1e308, math.inf, -math.inf, math.nan]


def value(rng: Random, dtype: DataType) -> Any:
    """Draw a value; the first ones of a type are the most frequent, which makes hot keys."""
    match dtype:
        case OptionalType(of):
            return None if rng.random() < 0.25 else value(rng, of)
        case IntType():
            return rng.choice(INTS) if rng.random() < 0.06 else rng.randrange(-2, 9)
        case FloatType():
            return rng.choice(FLOATS) if rng.random() < 0.25 else rng.randrange(-999, 999) / 100
        case BoolType():
            return rng.random() < 0.6
        case StringType():
            return _hot(rng, TEXTS)
        case BytesType():
            return _hot(rng, TEXTS).encode()
        case DatetimeType():
            return BASE + rng.randrange(-100, 100) * rng.choice([1, SECOND, 3600 * SECOND])
        case DateType():
            return 19_700 + rng.randrange(-5, 400)
        case DecimalType(scale):
            return _decimal(rng.randrange(-9999, 99999), scale)
        case ListType(of):
            return [value(rng, of) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        case EmbeddingType(dim):
            return [rng.randrange(-9, 9) / 4 for _ in range(dim)]
        case MapType(of):
            return {key: value(rng, of) for key in sorted(rng.sample(TEXTS, rng.randrange(3)))}
        case StructType(_, fields):
            return [value(rng, of) for _, of in fields]
        case OneOfType(_, options):
            return rng.choice(options)
        case BetweenType() | RegexType():
            raise TypeError(f"the generator makes no columns of {dtype}")


def _hot(rng: Random, pool: list[str]) -> str:
    return pool[min(int(rng.expovariate(0.45)), len(pool) - 1)]


def _decimal(units: int, scale: int) -> str:
    if scale == 0:
        return str(units)
    whole, fraction = divmod(abs(units), 10**scale)
    return f"{'-' if units < 0 else ''}{whole}.{fraction:0{scale}d}"
