"""The sources of all cases, as a user defines them, and the types of their columns."""

from datetime import datetime
from typing import Any, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, dataset, field
from caraway.dtypes import Decimal, Window

__owner__ = "oracle@example.com"

web = Webhook(name="web")

# Types of columns by short names.
_TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "cents": Decimal[2],
    "time": datetime,
    "window": Window,
}


def annotation_of(name: str) -> Any:
    """Return the annotation of a type: `int`, `int?` (optional), `[int?]` (a list)."""
    if name.endswith("?"):
        return Optional[annotation_of(name[:-1])]
    if name.startswith("["):
        return list[annotation_of(name[1:-1])]  # type: ignore[misc]
    return _TYPES[name]


@source(web.endpoint("Events"), disorder="14d", cdc="append")
@dataset
class Events:
    k: str
    j: str
    n: Optional[int]
    x: float
    s: Optional[str]
    c: Optional[Decimal[2]]
    tags: list[int]
    due: datetime
    at: datetime = field(timestamp=True)


@source(web.endpoint("More"), disorder="14d", cdc="append")
@dataset
class More:
    k: str
    j: str
    n: Optional[int]
    x: float
    s: Optional[str]
    c: Optional[Decimal[2]]
    tags: list[int]
    due: datetime
    at: datetime = field(timestamp=True)


@source(web.endpoint("Table"), disorder="14d", cdc="debezium")
@dataset(index=True)
class Table:
    k: str = field(key=True)
    j: str
    n: Optional[int]
    x: float
    s: Optional[str]
    due: datetime
    at: datetime = field(timestamp=True)


@source(web.endpoint("Sides"), disorder="14d", cdc="debezium")
@dataset(index=True)
class Sides:
    j: str = field(key=True)
    v: Optional[int]
    w: float
    at: datetime = field(timestamp=True)


EVENT_TYPES = {
    "k": "str",
    "j": "str",
    "n": "int?",
    "x": "float",
    "s": "str?",
    "c": "cents?",
    "tags": "[int]",
    "due": "time",
}
TABLE_TYPES = {name: kind for name, kind in EVENT_TYPES.items() if name not in {"c", "tags"}}
SIDE_TYPES = {"j": "str", "v": "int?", "w": "float"}
TYPES = {"Events": EVENT_TYPES, "More": EVENT_TYPES, "Table": TABLE_TYPES, "Sides": SIDE_TYPES}
KEYS: dict[str, tuple[str, ...]] = {"Events": (), "More": (), "Table": ("k",), "Sides": ("j",)}
DATASETS: dict[str, Dataset] = {"Events": Events, "More": More, "Table": Table, "Sides": Sides}
