"""Steps of pipelines, each written twice: as a user of Caraway writes it, and as a plain step for the oracle."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from caraway.datasets import Dataset
from caraway.dtypes import Session, Tumbling
from caraway.expr import col
from tests.unit.oracle import plain
from tests.unit.oracle.plain import SECOND, Row
from tests.unit.oracle.sources import DATASETS, KEYS, TYPES

Keep = Callable[[Row], bool]
Draw = Callable[[st.SearchStrategy[Any]], Any]
LENGTHS = (1, 2, 3, 5)


@dataclass(frozen=True)
class Both:
    """A step as both sides have it.

    Attributes:
        node: The product's.
        step: The oracle's.
        types: The columns without the timestamp.
        keys: The key columns of a table.
        inputs: The datasets that are read.
        tied: True if the order of rows with equal times is undefined.
    """

    node: Any
    step: plain.Step
    types: dict[str, str]
    keys: tuple[str, ...]
    inputs: tuple[Dataset, ...]
    tied: bool = False

    def columns(self, *kinds: str) -> list[str]:
        """Return the value columns of some types, optional or not."""
        return [name for name, kind in self.types.items() if kind.removesuffix("?") in kinds and name not in self.keys]

    def becomes(self, node: Any, step: plain.Step, **changes: Any) -> "Both":
        """Return what a further step makes of this."""
        return replace(self, node=node, step=step, **changes)


def read(name: str) -> Both:
    """Return the rows of a source."""
    return Both(DATASETS[name], plain.Read(name, KEYS[name]), dict(TYPES[name]), KEYS[name], (DATASETS[name],))


def text(seconds: int) -> str:
    return f"{seconds}s"


# Rows by themselves --------------------------------------------------------------------------------------------------


def filtered(draw: Draw, both: Both) -> Both:
    """Keep rows by a number or a text, by an expression or a function."""
    number = draw(st.sampled_from([-1, 0, 2]))
    ways: list[tuple[Any, Keep]] = []
    for name in both.columns("int"):
        if both.types[name] == "int?":
            ways += [(col(name).fillnull(0) > number, exceeds(name, number)), (col(name).isnull(), is_null(name))]
        else:
            ways.append((col(name) > number, exceeds(name, number)))
    for name in both.columns("float"):
        if both.types[name] == "float":
            ways += [(col(name) > 0.1, exceeds(name, 0.1)), (function_of(name), exceeds(name, 0.1))]
    if not ways:
        return both
    written, keep = draw(st.sampled_from(ways))
    return both.becomes(both.node.filter(written), plain.Filter(both.step, keep))


def exceeds(name: str, number: float) -> Keep:
    """Return a condition for rows; null counts as zero."""
    return lambda row: (row[name] or 0) > number


def is_null(name: str) -> Keep:
    return lambda row: row[name] is None


def function_of(name: str) -> Callable[[Any], Any]:
    """Return the function of a filter."""
    return lambda df: df[name] > 0.1


def assigned(draw: Draw, both: Both) -> Both:
    """Add or replace columns by expressions, which see the row before the step."""
    numbers = [name for name in both.columns("int") if both.types[name] == "int?"]
    floats = [name for name in both.columns("float") if both.types[name] == "float"]
    if not numbers or not floats:
        return both
    n, x = draw(st.sampled_from(numbers)), draw(st.sampled_from(floats))
    into = draw(st.sampled_from([x, "y"]))
    node = both.node.assign(
        **{n: (col(n).fillnull(3) - 1).astype(int), into: (col(x) * 0.1 + col(n).fillnull(7)).astype(float)}
    )

    def change(row: Row) -> Row:
        number = row[n]
        return row | {
            n: (3 if number is None else number) - 1,
            into: row[x] * 0.1 + (7 if number is None else number),
        }

    return both.becomes(node, plain.Change(both.step, change), types=both.types | {n: "int", into: "float"})


def renamed(draw: Draw, both: Both) -> Both:
    """Rename a column."""
    values = [name for name in both.types if name not in {*both.keys, "k", "j"} and f"{name}_" not in both.types]
    if not values:
        return both
    old = draw(st.sampled_from(values))
    new = f"{old}_"

    def change(row: Row) -> Row:
        return {new if name == old else name: value for name, value in row.items()}

    types = {new if name == old else name: kind for name, kind in both.types.items()}
    return both.becomes(both.node.rename({old: new}), plain.Change(both.step, change), types=types)


def dropped(draw: Draw, both: Both) -> Both:
    """Leave a column out."""
    values = [name for name in both.types if name not in {*both.keys, "k", "j", "n", "x"}]
    if not values:
        return both
    gone = draw(st.sampled_from(values))

    def change(row: Row) -> Row:
        return {name: value for name, value in row.items() if name != gone}

    types = {name: kind for name, kind in both.types.items() if name != gone}
    return both.becomes(both.node.drop(gone), plain.Change(both.step, change), types=types)


def transformed(draw: Draw, both: Both) -> Both:
    """Change a column by a function of frames."""
    floats = [name for name in both.columns("float") if both.types[name] == "float"]
    if not floats:
        return both
    name = floats[0]
    node = both.node.transform(lambda df: df.assign(**{name: df[name] + 0.5}))
    return both.becomes(node, plain.Change(both.step, lambda row: row | {name: row[name] + 0.5}))


def without_nulls(draw: Draw, both: Both) -> Both:
    """Drop rows with nulls."""
    optional = [name for name, kind in both.types.items() if kind.endswith("?")]
    if not optional:
        return both
    names = draw(st.lists(st.sampled_from(optional), min_size=1, max_size=2, unique=True))
    types = {name: kind.removesuffix("?") if name in names else kind for name, kind in both.types.items()}
    return both.becomes(both.node.dropnull(*names), plain.DropNull(both.step, tuple(names)), types=types)


# Streams -------------------------------------------------------------------------------------------------------------


def exploded(draw: Draw, both: Both) -> Both:
    """Make a row for each element."""
    lists = [name for name, kind in both.types.items() if kind == "[int]"]
    if not lists:
        return both
    types = both.types | {lists[0]: "int?"}
    return both.becomes(both.node.explode(lists[0]), plain.Explode(both.step, (lists[0],)), types=types)


def united(draw: Draw, both: Both) -> Both:
    """Add the rows of another stream, or some of the same stream once more."""
    other = read("More")
    if both.types != other.types or draw(st.booleans()):
        other = filtered(draw, both)
    left, right = (both, other) if draw(st.booleans()) else (other, both)
    inputs = tuple({id(found): found for found in (*both.inputs, *other.inputs)}.values())
    return both.becomes(left.node + right.node, plain.Union(left.step, right.step), inputs=inputs)


def deduplicated(draw: Draw, both: Both) -> Both:
    """Keep the last of duplicates."""
    if both.tied:
        return both
    kinds = ("str", "int")
    by = draw(st.lists(st.sampled_from(both.columns(*kinds)), min_size=1, max_size=2, unique=True))
    size = draw(st.sampled_from(LENGTHS))
    written, window = draw(
        st.sampled_from(
            [
                (None, None),
                (Tumbling(text(size)), plain.Hopping(size * SECOND, size * SECOND)),
                (Session(text(size)), plain.Session(size * SECOND)),
            ]
        )
    )
    node = both.node.dedup(by=by, window=written)
    return both.becomes(node, plain.Dedup(both.step, tuple(by), window))


# Joins ---------------------------------------------------------------------------------------------------------------


def joined(draw: Draw, both: Both, right: Both | None = None) -> Both:
    """Join with a table by the column `j`, by which it is keyed; an event may reach back and ahead."""
    right = right or read("Sides")
    if "j" not in both.types or any(name in both.types for name in right.types if name != "j"):
        return both
    how = draw(st.sampled_from(["inner", "left"]))
    before = draw(st.sampled_from([None, *LENGTHS]))
    after = draw(st.sampled_from([0, 0, *LENGTHS]))
    within = ("forever" if before is None else text(before), text(after))
    added = [name for name in right.types if name != "j"]
    if draw(st.booleans()):
        added = added[:1]
    node = both.node.join(right.inputs[-1], how=how, on=["j"], within=within, fields=added)
    step = plain.Join(
        both.step,
        right.step,  # type: ignore[arg-type]
        ("j",),
        how == "inner",
        tuple(added),
        None if before is None else before * SECOND,
        after * SECOND,
    )
    types = dict(both.types)
    for name in added:
        kind = right.types[name]
        types[name] = kind if how == "inner" or kind.endswith("?") else f"{kind}?"
    inputs = tuple({id(found): found for found in (*both.inputs, right.inputs[-1])}.values())
    return both.becomes(node, step, types=types, inputs=inputs, tied=both.tied or bool(both.keys))


def changes(draw: Draw, both: Both) -> Both:
    """Make a stream of a table's changes."""
    inserts = draw(st.booleans())
    flag = "inserted" if inserts else "deleted"
    node = both.node.changelog(**{"insert" if inserts else "delete": flag})
    step = plain.Changelog(both.step, flag, inserts)
    return both.becomes(node, step, types=both.types | {flag: "bool"}, keys=())


STATELESS = (filtered, assigned, renamed, dropped, transformed, without_nulls)
STREAMING = (exploded, united, deduplicated, joined)
