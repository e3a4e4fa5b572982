"""Aggregates and their windows, each written for the product and described for the oracle."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from caraway.datasets import (
    Average,
    Count,
    Distinct,
    ExpDecaySum,
    FirstK,
    LastK,
    Max,
    Min,
    Quantile,
    Stddev,
    Sum,
    Variance,
)
from caraway.dtypes import Continuous, Hopping, Session, Tumbling
from tests.unit.oracle import plain
from tests.unit.oracle.plain import SECOND
from tests.unit.oracle.steps import LENGTHS, Both, Draw, text

HASHABLE = ("int", "str", "bool", "cents")
NUMERIC = ("int", "float", "cents")
ZEROS: dict[str, Any] = {"int": 0, "float": 0.0, "cents": plain.NO_CENTS}

# The product's aggregate, the oracle's, and the type of the column.
Written = tuple[Any, plain.Aggregated, str]
Windows = Callable[[], tuple[Any, Any]]


@dataclass(frozen=True)
class Of:
    """The parts of an aggregate: its output column, its window, and the column that it reads."""

    draw: Draw
    name: str
    given: dict[str, Any]
    window: Any
    column: str
    kind: str
    is_optional: bool

    def both(self, product: Any, function: str, kind: str, *, also: Any = None, **parameters: Any) -> Written:
        """Return an aggregate with parameters that both sides have, and with some that the product alone has."""
        written = product(of=self.column, **parameters, **(also or {}), **self.given)
        described = plain.Aggregated(self.name, function, of=self.column, window=self.window, **parameters)
        return written, described, kind

    def or_null(self, kind: str, default: Any) -> str:
        return f"{kind}?" if default is None else kind

    def listed(self, *, dropnull: bool) -> str:
        return f"[{self.kind}]" if dropnull or not self.is_optional else f"[{self.kind}?]"

    def drops(self) -> bool:
        """Draw whether nulls are left out, which only an optional column allows."""
        return self.is_optional and bool(self.draw(st.booleans()))


def count(of: Of) -> Written:
    if of.is_optional and of.draw(st.booleans()):
        return of.both(Count, "count", "int", dropnull=True)
    return Count(**of.given), plain.Aggregated(of.name, "count", window=of.window), "int"


def unique(of: Of) -> Written:
    return of.both(Count, "count", "int", unique=True, dropnull=of.drops(), also={"approx": True})


def total(of: Of) -> Written:
    written, _, _ = of.both(Sum, "sum", of.kind)
    return written, plain.Aggregated(of.name, "sum", of=of.column, window=of.window, zero=ZEROS[of.kind]), of.kind


def moment(product: Any, function: str) -> Callable[[Of], Written]:
    def made(of: Of) -> Written:
        default = of.draw(st.sampled_from([None, -1.0, 0.0]))
        return of.both(product, function, of.or_null("float", default), default=default)

    return made


def extreme(product: Any, function: str) -> Callable[[Of], Written]:
    def made(of: Of) -> Written:
        default = of.draw(st.sampled_from([None, 4])) if of.kind == "int" else None
        return of.both(product, function, of.or_null(of.kind, default), default=default)

    return made


def quantile(of: Of) -> Written:
    p, default = of.draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])), of.draw(st.sampled_from([None, 2.5]))
    kind = of.or_null("float", default)
    return of.both(Quantile, "quantile", kind, p=p, default=default, also={"approx": True})


def distinct(of: Of) -> Written:
    dropnull = of.drops()
    kind = of.listed(dropnull=dropnull)
    return of.both(Distinct, "distinct", kind, dropnull=dropnull, also={"unordered": True})


def ends(product: Any, function: str) -> Callable[[Of], Written]:
    def made(of: Of) -> Written:
        dropnull, limit = of.drops(), of.draw(st.integers(1, 3))
        kind = of.listed(dropnull=dropnull)
        return of.both(product, function, kind, limit=limit, dedup=of.draw(st.booleans()), dropnull=dropnull)

    return made


def decayed(of: Of) -> Written:
    seconds = of.draw(st.sampled_from(LENGTHS))
    written = ExpDecaySum(of=of.column, half_life=text(seconds), **of.given)
    described = plain.Aggregated(of.name, "exp_decay_sum", of=of.column, window=of.window, half_life=seconds * SECOND)
    return written, described, "float"


# Aggregates by the types of columns that they read.
NUMBERS = (
    total,
    total,
    moment(Average, "average"),
    moment(Stddev, "stddev"),
    moment(Variance, "variance"),
    quantile,
)
EXTREMES = (extreme(Min, "min"), extreme(Max, "max"))
ENDS = (ends(LastK, "last_k"), ends(FirstK, "first_k"))


def one_aggregate(draw: Draw, both: Both, name: str, written: Any, window: Any) -> Written:
    """Draw an aggregate of some column."""
    numbers, hashable = both.columns(*NUMERIC), both.columns(*HASHABLE)
    every = [column for column in both.types if column not in both.keys]
    ways: list[tuple[Callable[[Of], Written], list[str]]] = [(count, every)]
    ways += [(made, numbers) for made in NUMBERS]
    ways += [(made, [*numbers, *both.columns("time")]) for made in EXTREMES]
    ways.append((unique, hashable))
    # The index doesn't store decayed sums of discrete windows by the same rule: the specification leaves them open.
    if isinstance(window, plain.Continuous):
        ways.append((decayed, numbers))
    if not both.tied:
        # These show the order of rows.
        ways += [(distinct, hashable), *((made, every) for made in ENDS * 2)]
    made, columns = draw(st.sampled_from([way for way in ways if way[1]]))
    column = draw(st.sampled_from(columns))
    kind = both.types[column]
    given = {} if written is None else {"window": written}
    drawn: tuple[Any, plain.Aggregated, str] = made(
        Of(draw, name, given, window, column, kind.removesuffix("?"), kind.endswith("?"))
    )
    return drawn


def aggregated_columns(draw: Draw, both: Both, windows: Windows) -> dict[str, Written]:
    """Draw aggregates, by output column."""
    made = {}
    for number in range(draw(st.sampled_from([5, 4, 1]))):
        name = f"a{number}"
        written, window = windows()
        made[name] = one_aggregate(draw, both, name, written, window)
    return made


def continuous(draw: Draw) -> tuple[Any, plain.Continuous]:
    seconds = draw(st.sampled_from([None, *LENGTHS]))
    if seconds is None:
        return Continuous("forever"), plain.Continuous(None)
    return Continuous(text(seconds)), plain.Continuous(seconds * SECOND)


def hopping(draw: Draw, *, lookback: int = 0, forever: bool = False) -> tuple[Any, plain.Hopping]:
    """Draw a discrete window; with `forever` one that covers all of the past."""
    seconds, stride = draw(st.sampled_from(LENGTHS)), draw(st.sampled_from(LENGTHS))
    seconds, stride = max(seconds, stride), min(seconds, stride)
    kind = "forever" if forever else draw(st.sampled_from(["tumbling", "hopping", "forever"]))
    if kind == "tumbling":
        return (
            Tumbling(text(seconds), lookback=text(lookback)),
            plain.Hopping(seconds * SECOND, seconds * SECOND, lookback * SECOND),
        )
    if kind == "hopping":
        return (
            Hopping(text(seconds), text(stride), lookback=text(lookback)),
            plain.Hopping(seconds * SECOND, stride * SECOND, lookback * SECOND),
        )
    return (
        Hopping("forever", text(stride), lookback=text(lookback)),
        plain.Hopping(None, stride * SECOND, lookback * SECOND),
    )


def aggregated(draw: Draw, both: Both) -> Both:
    """Aggregate over continuous or discrete windows."""
    keys = draw(st.sampled_from([("k",), ("j",), ("j", "k")]))
    times = both.columns("time")
    along = draw(st.sampled_from([None, None, *times[:1]]))
    is_discrete, lookback = draw(st.booleans()), draw(st.sampled_from([0, 0, 2, 4]))
    # A table is aggregated over all of the past, or along a column.
    forever = bool(both.keys) and along is None

    def windows() -> tuple[Any, Any]:
        return hopping(draw, lookback=lookback, forever=forever) if is_discrete else continuous(draw)

    made = aggregated_columns(draw, both, windows)
    node = both.node.groupby(*keys).aggregate(**{name: written for name, (written, _, _) in made.items()}, along=along)
    step = plain.Aggregate(both.step, keys, tuple(column for _, column, _ in made.values()), along)
    types = {name: both.types[name] for name in keys} | {name: kind for name, (_, _, kind) in made.items()}
    return both.becomes(node, step, types=types, keys=keys, tied=True)


def bucketed(draw: Draw, both: Both) -> Both:
    """Aggregate each bucket or session of a group."""
    keys = draw(st.sampled_from([("k",), ("j", "k")]))
    written: Any
    window: plain.Session | plain.Hopping
    if draw(st.booleans()):
        gap = draw(st.sampled_from(LENGTHS))
        written, window = Session(text(gap)), plain.Session(gap * SECOND)
    else:
        seconds, stride = draw(st.sampled_from(LENGTHS)), draw(st.sampled_from(LENGTHS))
        seconds, stride = max(seconds, stride), min(seconds, stride)
        written = Hopping(text(seconds), text(stride))
        window = plain.Hopping(seconds * SECOND, stride * SECOND)
    made = aggregated_columns(draw, both, lambda: (None, window))
    node = both.node.groupby(*keys, window=written).aggregate(**{name: found for name, (found, _, _) in made.items()})
    step = plain.Aggregate(both.step, keys, tuple(column for _, column, _ in made.values()), None, window)
    types = {name: both.types[name] for name in keys} | {"window": "window"}
    types |= {name: kind for name, (_, _, kind) in made.items()}
    return both.becomes(node, step, types=types, keys=(*keys, "window"), tied=True)


def newest(draw: Draw, both: Both) -> Both:
    """Keep the newest row of each group, or the oldest."""
    keys = draw(st.sampled_from([("k",), ("j", "k")]))
    if both.tied:
        return aggregated(draw, both)
    if draw(st.booleans()):
        return both.becomes(both.node.groupby(*keys).latest(), plain.Latest(both.step, keys), keys=keys)
    return both.becomes(both.node.groupby(*keys).first(), plain.First(both.step, keys), keys=keys)
