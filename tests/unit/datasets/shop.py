"""Datasets of a shop, on which operators are tested."""

# Type checkers see classes where decorators make datasets.
# mypy: disable-error-code="type-arg, valid-type"
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Dict, List, Optional

from caraway.datasets import Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Embedding, between, oneof, regex, struct
from caraway.lib import inputs

HOUR = Continuous("1h")
FOREVER = Continuous("forever")
# The fields of a dataset that has a key if `field(key=True)` marks it.
KEYED = {"k": int, "at": datetime}


@struct
class Place:
    town: str


@dataset
class Orders:
    user: int
    shop: Optional[str]
    price: float
    count: Optional[int]
    stars: between(int, 1, 5)
    size: oneof(str, ["s", "m"])
    cost: Decimal[2]
    day: date
    at: datetime


@dataset(index=True)
class Users:
    user: int = field(key=True)
    town: Optional[str]
    size: oneof(str, ["s", "m"])
    born: date
    since: datetime


@dataset
class Visits:
    user: int
    tags: List[str]
    marks: List[Optional[int]]
    codes: Optional[List[int]]
    counts: Dict[str, int]
    ratio: between(float, 0, 1)
    zip: regex("[0-9]+")
    level: oneof(int, [1, 2])
    good: bool
    picture: bytes
    vector: Embedding[2]
    place: Place
    seen: Optional[datetime]
    due: datetime
    at: datetime = field(timestamp=True)


def body(annotations: dict[str, Any], **values: Any) -> type:
    return type("Bad", (), {"__annotations__": annotations, **values})


def total(node: Any) -> Any:
    """Return an aggregate that nothing can follow: an eager one over a continuous window."""
    return node.groupby("user").aggregate(total=Sum(of="price", window=HOUR))


def derive(build: Callable[..., Any], *given: Any, **annotations: Any) -> Any:
    """Define a dataset, keyed by user, with `build` as its pipeline `compute`."""
    return derived({"compute": (build, given)}, annotations)


def derived(
    builds: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]], annotations: dict[str, Any], **more: Any
) -> Any:
    """Define a dataset, keyed by user, with several pipelines, and more members."""
    members: dict[str, Any] = dict(more)
    for name, (build, given) in builds.items():
        build.__name__ = name
        members[name] = pipeline(inputs(*given)(build)) if given else pipeline(build)
    shape = {"__annotations__": annotations or {"user": int, "total": float, "at": datetime}, "user": field(key=True)}
    made: Dataset = dataset(type("Derived", (), {**shape, **members}))
    return made
