"""Plain descriptions of graphs, which the oracle computes: data without behaviour, and nothing of the product.

Times are whole microseconds since the epoch (UTC), lengths of windows are whole microseconds, too. A row is a dict of
the columns without the timestamp.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]
SECOND = 1_000_000
# The sum of no decimals with two digits after the point.
NO_CENTS = Decimal("0.00")


@dataclass(frozen=True)
class Fact:
    """One event of a stream, or one version of a row of a table.

    Attributes:
        time: The event time.
        order: The order of arrival: if two facts have equal times, the one with the greater order came later.
        row: The columns; for a deleted row those of its key at least.
        key: The key of a version; empty for an event.
        deleted: True if the table has no row of this key from `time` on.
    """

    time: int
    order: tuple[Any, ...]
    row: Row
    key: Key = ()
    deleted: bool = False


@dataclass(frozen=True)
class Logged:
    """A row that was logged to a source, or its deletion, with the time at which it was accepted."""

    source: str
    time: int
    row: Row
    ingested: int
    deleted: bool = False


# Windows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Continuous:
    """The last `length` before a read, or all of the past if it is None."""

    length: int | None


@dataclass(frozen=True)
class Hopping:
    """Buckets of `length` (None: from the beginning of time) that end each `stride`; held back by `lookback`."""

    length: int | None
    stride: int
    lookback: int = 0


@dataclass(frozen=True)
class Session:
    """Runs of rows that follow each other closely."""

    gap: int


# Steps ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """The rows of a dataset; `keys` are empty if it is a stream."""

    dataset: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Filter:
    """The rows for which `keep` is true."""

    of: "Step"
    keep: Callable[[Row], bool]


@dataclass(frozen=True)
class Change:
    """Each row replaced by what `change` makes of it: assign, transform, select, drop, rename."""

    of: "Step"
    change: Callable[[Row], Row]


@dataclass(frozen=True)
class DropNull:
    """The rows that have no null in these columns."""

    of: "Step"
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Explode:
    """A row for each element of lists."""

    of: "Step"
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Union:
    """The rows of two streams."""

    left: "Step"
    right: "Step"


@dataclass(frozen=True)
class Dedup:
    """The last row of each group of duplicates: equal in `by`, and of one time, one bucket or one session."""

    of: "Step"
    by: tuple[str, ...]
    window: Hopping | Session | None


@dataclass(frozen=True)
class Latest:
    """A table of the newest row of each group."""

    of: "Step"
    keys: tuple[str, ...]


@dataclass(frozen=True)
class First:
    """A table of the oldest row of each group."""

    of: "Step"
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Changelog:
    """The changes of a table as a stream; the column `flag` is true for inserts, or else for deletes."""

    of: "Step"
    flag: str
    inserts: bool


@dataclass(frozen=True)
class Join:
    """Each left row with the right row of its join key.

    `left_on` has the left columns in the order of the right keys. `added` are the right columns that are added,
    `before` (None: forever) and `after` say how far the match may lie from a left event.
    """

    left: "Step"
    right: Read
    left_on: tuple[str, ...]
    inner: bool
    added: tuple[str, ...]
    before: int | None = None
    after: int = 0


@dataclass(frozen=True)
class Aggregated:
    """One output column of an aggregation.

    `zero` is the sum of nothing, which also tells the type of a sum. The other attributes are those of the API.
    """

    name: str
    function: str
    of: str | None = None
    window: Continuous | Hopping | None = None
    default: Any = None
    dropnull: bool = False
    unique: bool = False
    dedup: bool = False
    limit: int = 0
    p: float = 0.0
    half_life: int = 0
    zero: Any = 0


@dataclass(frozen=True)
class Aggregate:
    """Aggregates of groups; with `window`, of each bucket or session of a group."""

    of: "Step"
    keys: tuple[str, ...]
    columns: tuple[Aggregated, ...]
    along: str | None = None
    window: Hopping | Session | None = None


Step = Read | Filter | Change | DropNull | Explode | Union | Dedup | Latest | First | Changelog | Join | Aggregate


@dataclass(frozen=True)
class Feature:
    """A feature: `column` of a dataset, whose key are the features `keys`, with a default; or computed from others."""

    name: str
    keys: tuple[str, ...] = ()
    dataset: str = ""
    column: str = ""
    default: Any = None
    compute: Callable[[Row], Any] | None = None


@dataclass(frozen=True)
class Described:
    """A graph: the key columns of each source, and the step that computes each derived dataset."""

    sources: Mapping[str, tuple[str, ...]]
    derived: Mapping[str, Step]
