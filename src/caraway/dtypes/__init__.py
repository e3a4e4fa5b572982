"""Data types, windows and durations, as they are used in annotations."""

from caraway.dtypes.restrictions import Decimal, Embedding, between, oneof, regex
from caraway.dtypes.structs import Struct, Window, struct
from caraway.dtypes.windows import Continuous, Hopping, Session, Tumbling

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
