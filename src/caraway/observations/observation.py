"""An observation as a table: how the rows of a server's answer become cells, wherever it is shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from caraway.observations.figures import UNKNOWN, ago, number

Row = Mapping[str, Any]
# The path of a page of the console, and its parameters.
Page = tuple[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: Its heading, in lower case.
        cell: The name of a row's member, or a function that returns a cell: a text, a number, an instant, or None if
            nothing is known. Cells have data of users, so whoever shows them escapes them.
        is_figure: True if its cells are aligned to the right.
        is_code: True if its cells are identifiers, which are shown whole.
        is_age: True if its instants are shown as ages.
        tone: Returns "bad" for a row whose cell is alarming, "good" for one that says that all is well, "waits" for one
            that may be either soon, else "".
        page: Returns the page of the console to which a cell leads; None if there is none.
    """

    name: str
    cell: str | Callable[[Row], object]
    _: KW_ONLY
    is_figure: bool = False
    is_code: bool = False
    is_age: bool = False
    tone: Callable[[Row], str] = lambda _row: ""
    page: Callable[[Row], Page | None] = lambda _row: None


def figure(name: str, cell: str | Callable[[Row], object]) -> Column:
    """Return a column of figures."""
    return Column(name, cell, is_figure=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A table of rows of an answer.

    Attributes:
        title: A caption.
        rows: The name of the answer's member with the rows, or a function that returns them.
        columns: The columns, the first of which names the row.
        order: The key by which rows are sorted: those that need somebody come first. By default as they are answered.
    """

    title: str
    rows: str | Callable[[Mapping[str, Any]], Sequence[Row]]
    columns: tuple[Column, ...]
    order: Callable[[Row], Any] = lambda _row: 0


def rows_of(observation: Observation, answer: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an answer, in their order."""
    rows = answer[observation.rows] if isinstance(observation.rows, str) else observation.rows(answer)
    return sorted(rows, key=observation.order)


def without(observation: Observation, *names: str) -> Observation:
    """Return an observation for a place with less room, which lacks some columns."""
    return replace(observation, columns=tuple(one for one in observation.columns if one.name not in names))


def text_of(column: Column, row: Row, *, zone: tzinfo | None = UTC, now: datetime | None = None) -> str:
    """Return a cell as text: instants in a zone (None: that of this machine), and ages at the time `now` if given."""
    found = row[column.cell] if isinstance(column.cell, str) else column.cell(row)
    match found:
        case None:
            return UNKNOWN
        case datetime() if column.is_age and now is not None:
            return ago(found, now)
        case datetime():
            return found.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
        case _:
            return number(found)
