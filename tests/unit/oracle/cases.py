"""Random cases: a small graph, written for the product and described for the oracle, and what is logged to it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from caraway.datasets import Dataset, dataset, field, pipeline
from caraway.lib import inputs
from tests.unit.oracle import aggregates, plain, steps
from tests.unit.oracle.plain import SECOND, Described, Key, Logged
from tests.unit.oracle.sources import DATASETS, KEYS, TYPES, annotation_of
from tests.unit.oracle.steps import Both, Draw

__owner__ = "oracle@example.com"

# A whole day, so that buckets of any length in seconds have edges near it.
BASE = round(datetime(2024, 2, 29, tzinfo=UTC).timestamp()) * SECOND
# Parts of a second at which events lie: most of them at edges of windows, some beside them.
FRACTIONS = (0, 0, 0, 0, 0, 1, 500_000, 999_999)
DELAYS = (0, 0, 1, SECOND, 4 * SECOND, 12 * SECOND)
# All events are in so many seconds.
SECONDS = 14
# So many rows of a source: half as many at least.
SIZES = (3, 10, 18)
OUT, MIDDLE = "Out", "Middle"


@dataclass(frozen=True)
class Case:
    """A graph on both sides, and the rows that are logged to it.

    Attributes:
        datasets: The product's datasets, sources first.
        read: The dataset that is read.
        described: The oracle's description of the same graph.
        types: The columns of the dataset that is read, without the timestamp.
        keys: Its key columns.
        logged: The rows that are logged, in the order in which they are accepted.
        batches: After how many rows a further log request begins.
        chosen: A number from which questions are drawn.
    """

    datasets: tuple[Dataset, ...]
    read: str
    described: Described
    types: dict[str, str]
    keys: tuple[str, ...]
    logged: tuple[Logged, ...]
    batches: int
    chosen: int

    def __repr__(self) -> str:
        """Show what is needed to understand a case that Hypothesis has reduced."""
        rows = "\n".join(
            f"  {row.source} +{(row.time - BASE) / SECOND:.6f} s {'delete ' if row.deleted else ''}{row.row}"
            f" (accepted at +{(row.ingested - BASE) / SECOND:.6f})"
            for row in self.logged
        )
        return f"Case of {self.described.derived}, keys {self.keys}:\n{rows}"


# Logged rows ------------------------------------------------------------------------------------------------------

# The values of columns; few, so that rows meet.
TIMES = [BASE + seconds * SECOND + fraction for seconds in range(SECONDS) for fraction in FRACTIONS]
INTS, FLOATS = [None, 0, 1, 2, 3, -5], [0.1, 0.2, 0.3, -0.5, 1e16, 7.25, 0.0]
VALUES: dict[str, list[Any]] = {
    "k": ["a", "a", "b"],
    "j": ["p", "p", "q"],
    "n": INTS,
    "x": FLOATS,
    "s": [None, "b", "c", ""],
    "c": [None, Decimal("0.10"), Decimal("-3.05"), Decimal("12.00")],
    "tags": [[], [1], [2, 3], [1, 0, 1]],
    "due": TIMES,
    "v": INTS,
    "w": FLOATS,
}


@st.composite
def choices(draw: Draw, *options: Sequence[Any]) -> list[Any]:
    """Draw one of each of some options, by a single number: a draw for each would take most of a test's time."""
    number = draw(st.integers(0, math.prod(map(len, options)) - 1))
    chosen = []
    for some in options:
        number, position = divmod(number, len(some))
        chosen.append(some[position])
    return chosen


@st.composite
def logged_rows(draw: Draw, source: str) -> Logged:
    """Draw a row of a source, or for a table sometimes the deletion of one."""
    names = list(TYPES[source])
    time, delay, deleted = draw(choices(TIMES, DELAYS, [False, False, False, bool(KEYS[source])]))
    row = dict(zip(names[:3], draw(choices(*(VALUES[name] for name in names[:3]))), strict=True))
    row |= zip(names[3:], draw(choices(*(VALUES[name] for name in names[3:]))), strict=True)
    # Envelopes of changes tell the time of a deletion in milliseconds.
    time = time // 1000 * 1000 if deleted else time
    return Logged(source, time, row, time + delay, deleted)


@st.composite
def histories(draw: Draw, sources: Sequence[str]) -> tuple[Logged, ...]:
    """Draw what is logged to some sources, in the order in which it is accepted."""
    found: list[Logged] = []
    for source in sources:
        size = draw(st.sampled_from(SIZES))
        found += draw(st.lists(logged_rows(source), min_size=size // 2, max_size=size))
    return tuple(sorted(found, key=lambda logged: logged.ingested))


# Graphs --------------------------------------------------------------------------------------------------------------


def defined(name: str, both: Both) -> Dataset:
    """Define the dataset of a pipeline as a user would, with a class."""
    annotations = {column: annotation_of(kind) for column, kind in both.types.items()} | {"at": datetime}
    node = both.node

    def made(cls: Any, *read: Dataset) -> Any:
        return node

    arity: dict[int, Any] = {
        1: lambda cls, a: made(cls, a),
        2: lambda cls, a, b: made(cls, a, b),
        3: lambda cls, a, b, c: made(cls, a, b, c),
    }
    space: dict[str, Any] = {"__annotations__": annotations, "__module__": __name__}
    space |= {key: field(key=True) for key in both.keys} | {"at": field(timestamp=True)}
    space["made"] = pipeline(inputs(*both.inputs)(arity[len(both.inputs)]))
    return dataset(index=True)(type(name, (), space)) if both.keys else dataset(type(name, (), space))


def stream(draw: Draw, longest: int) -> Both:
    """Draw some steps over events."""
    both = steps.read("Events")
    for step in draw(st.lists(st.sampled_from([*steps.STATELESS, *steps.STREAMING * 2]), max_size=longest)):
        both = step(draw, both)
    return both


def table(draw: Draw, longest: int) -> Both:
    """Draw some steps over a table."""
    both = steps.read("Table")
    for step in draw(st.lists(st.sampled_from([*steps.STATELESS, steps.joined, steps.joined]), max_size=longest)):
        both = step(draw, both)
    return both


def events_of_a_table(draw: Draw) -> Both:
    """Draw a changelog and what follows it."""
    both = steps.changes(draw, table(draw, 1))
    for step in draw(st.lists(st.sampled_from([*steps.STATELESS, steps.joined]), max_size=1)):
        both = step(draw, both)
    return both


def sides(draw: Draw) -> Both:
    """Draw a derived table that can be joined by `j`."""
    both = steps.filtered(draw, steps.read("More"))
    if draw(st.booleans()):
        made = aggregates.aggregated_columns(draw, both, lambda: aggregates.hopping(draw))
        node = both.node.groupby("j").aggregate(**{name: written for name, (written, _, _) in made.items()})
        step: plain.Step = plain.Aggregate(both.step, ("j",), tuple(column for _, column, _ in made.values()))
        types = {"j": "str"} | {name: kind for name, (_, _, kind) in made.items()}
        return both.becomes(node, step, types=types, keys=("j",), tied=True)
    # The names differ from those of the events.
    chosen = {"j": "j", "n": "v", "x": "w"}
    node = both.node.select(*chosen).rename({"n": "v", "x": "w"}).groupby("j")
    both = both.becomes(
        both.node,
        plain.Change(both.step, lambda row: {new: row[old] for old, new in chosen.items()}),
        types={new: both.types[old] for old, new in chosen.items()},
        keys=("j",),
    )
    if draw(st.booleans()):
        return both.becomes(node.latest(), plain.Latest(both.step, ("j",)))
    return both.becomes(node.first(), plain.First(both.step, ("j",)))


def ended(draw: Draw, both: Both, *ends: Callable[[Draw, Both], Both]) -> Both:
    """Add one of some last steps."""
    return draw(st.sampled_from(ends))(draw, both)  # type: ignore[no-any-return]


def logged_alone(draw: Draw) -> Both:
    """Draw steps that take each row of a source by itself, before the last one."""
    both = steps.read("Events")
    for step in draw(st.lists(st.sampled_from(steps.STATELESS), max_size=2)):
        both = step(draw, both)
    return ended(draw, both, aggregates.aggregated, aggregates.aggregated, aggregates.newest)


def with_events(draw: Draw) -> Both:
    both = stream(draw, 3)
    return ended(draw, both, aggregates.aggregated, aggregates.aggregated, aggregates.bucketed, aggregates.newest)


def with_a_join(draw: Draw) -> Both:
    both = steps.joined(draw, steps.read("Events"))
    return ended(draw, both, aggregates.aggregated, aggregates.newest)


def with_a_table(draw: Draw) -> Both:
    both = table(draw, 2)
    return aggregates.aggregated(draw, both) if draw(st.booleans()) else both


def with_changes(draw: Draw) -> Both:
    both = events_of_a_table(draw)
    return ended(draw, both, aggregates.aggregated, aggregates.newest)


# Graphs of one pipeline, by name; those named `source` and `sides` are made otherwise.
PIPELINES: dict[str, Callable[[Draw], Both]] = {
    "events": with_events,
    "join": with_a_join,
    "table": with_a_table,
    "changes": with_changes,
    "logged": logged_alone,
}
SHAPES = (*PIPELINES, "source", "sides")


@st.composite
def cases(draw: Draw, shape: str) -> Case:
    """Draw a case of a shape."""
    if shape == "source":
        return case_of(draw, "Table", steps.read("Table"), {}, (), more=("Sides",))
    if shape != "sides":
        both = PIPELINES[shape](draw)
        return case_of(draw, OUT, both, {OUT: both.step}, (defined(OUT, both),))
    side = sides(draw)
    middle = defined(MIDDLE, side)
    right = Both(middle, plain.Read(MIDDLE, ("j",)), side.types, ("j",), (middle,))
    both = steps.joined(draw, steps.read(draw(st.sampled_from(["Events", "Table"]))), right)
    if not both.keys or draw(st.booleans()):
        both = aggregates.aggregated(draw, both)
    return case_of(draw, OUT, both, {MIDDLE: side.step, OUT: both.step}, (middle, defined(OUT, both)))


def case_of(
    draw: Draw,
    read: str,
    both: Both,
    derived: dict[str, plain.Step],
    datasets: tuple[Dataset, ...],
    *,
    more: tuple[str, ...] = (),
) -> Case:
    """Return a case of a graph, with random rows of the sources that it reads, and of some more."""
    names = [*sources_of([both.step, *derived.values()]), *more]
    return Case(
        (*(DATASETS[name] for name in names), *datasets),
        read,
        Described(KEYS, derived),
        both.types,
        both.keys,
        draw(histories(names)),
        draw(st.integers(1, 12)),
        draw(st.integers(0, 2**32)),
    )


def walk(step: plain.Step) -> list[plain.Step]:
    """Return a step and all steps before it."""
    match step:
        case plain.Read():
            return [step]
        case plain.Union() | plain.Join():
            return [step, *walk(step.left), *walk(step.right)]
        case _:
            return [step, *walk(step.of)]


def sources_of(found: Sequence[plain.Step]) -> list[str]:
    """Return the sources that steps read."""
    names = [step.dataset for one in found for step in walk(one) if isinstance(step, plain.Read)]
    return [name for name in DATASETS if name in names]


# Questions -----------------------------------------------------------------------------------------------------------


def times_of(case: Case) -> list[int]:
    """Return the times at which answers may change, and a microsecond before and after each.

    Rows and the edges of windows lie at whole seconds, or at one of a few parts of a second.
    """
    fractions = sorted({logged.time % SECOND for logged in case.logged} | {0})
    return [
        BASE + seconds * SECOND + fraction + beside
        for seconds in range(-2, 2 * SECONDS)
        for fraction in fractions
        # Whole seconds are asked for more often.
        for beside in ((0, 0, 0, -1, 1) if fraction == 0 else (0, -1, 1))
    ]


def keys_of(case: Case) -> list[Key]:
    """Return keys that rows have, and one that none has."""
    values: dict[str, list[Any]] = {"k": ["a", "b"], "j": ["p", "q"]}
    names = [name for name in case.keys if name != "window"]
    found: list[Key] = [()]
    for name in names:
        found = [(*key, value) for key in found for value in values[name]]
    found.append(("never",) * len(names))
    step = case.described.derived.get(case.read)
    if not isinstance(step, plain.Aggregate) or step.window is None:
        return found
    return [(*key, bounds) for key in found for bounds in bounds_of(case, step.window)]


def bounds_of(case: Case, window: plain.Hopping | plain.Session) -> list[tuple[int, int]]:
    """Return windows that may have rows."""
    seconds = sorted({logged.time // SECOND * SECOND for logged in case.logged})
    if isinstance(window, plain.Session):
        # A session is a run of rows without long gaps.
        runs = [
            (begin, end, [second for second in seconds if begin <= second <= end])
            for begin in seconds
            for end in seconds
            if begin <= end
        ]
        return [
            (begin, end + 1)
            for begin, end, run in runs
            if all(after - before <= 3 * window.gap for before, after in pairwise(run))
        ]
    length = window.length or window.stride
    last = max(seconds, default=BASE) // window.stride
    first = min(seconds, default=BASE) // window.stride - length // window.stride - 1
    return [(number * window.stride, number * window.stride + length) for number in range(first, last + 4)]
