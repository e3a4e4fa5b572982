"""Data types, windows and durations, as they are used in annotations."""

from caraway.dtypes import containers, numbers, text, times
from caraway.dtypes.restrictions import Decimal, Embedding, between, oneof, regex
from caraway.dtypes.structs import Struct, Window, struct
from caraway.dtypes.windows import Continuous, Hopping, Session, Tumbling

# Importing these modules registers the conversions of their types; `restrictions` and `structs` do the same above.
_FAMILIES = (containers, numbers, text, times)

__all__ = [
    "Continuous",
    "Decimal",
    "Embedding",
    "Hopping",
    "Session",
    "Struct",
    "Tumbling",
    "Window",
    "between",
    "oneof",
    "regex",
    "struct",
]
