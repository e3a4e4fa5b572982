"""Answers of a server that are plain values for programs, and tables in notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caraway.observations.observation import Observation, rows_of, text_of
from caraway.process.displays import Table, html

# At most this many columns of a table are shown in a notebook. The columns that come first tell most, so the others are
# left out.
MAX_COLUMNS = 12


class Answer(dict[str, Any]):
    """An answer with several members: those that are lists of objects are tables in a notebook, others facts."""

    def __init__(self, title: str, content: Mapping[str, Any], observations: Sequence[Observation] = ()) -> None:
        """Have this content, be called by a title, and be shown as these observations if there are any."""
        super().__init__(content)
        self._title = title
        self._observations = observations

    def _repr_html_(self) -> str:
        # Notebooks call a method with this name to show an object as HTML.
        tables = {name: value for name, value in self.items() if _is_table(value)}
        facts = [f"{name}: {_text(value)}" for name, value in self.items() if name not in tables and value is not None]
        shown = [_table_of(one, rows_of(one, self)) for one in self._observations]
        return html(self._title, facts, shown or [_table_of_rows(name, rows) for name, rows in tables.items()])


class Answers(list[dict[str, Any]]):
    """An answer that is a list of objects, which are the rows of an observation, a table in a notebook."""

    def __init__(self, observation: Observation, content: Iterable[dict[str, Any]]) -> None:
        """Have this content, and be shown as an observation."""
        super().__init__(content)
        self._observation = observation

    def _repr_html_(self) -> str:
        rows = sorted(self, key=self._observation.order)
        return html(self._observation.title, [f"{len(self):,}"], [_table_of(self._observation, rows)])


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _table_of(observation: Observation, rows: Iterable[Mapping[str, Any]]) -> Table:
    cells = [[text_of(column, row) for column in observation.columns] for row in rows]
    return Table(observation.title, [column.name for column in observation.columns], cells)


def _table_of_rows(caption: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))[:MAX_COLUMNS]
    return Table(caption, columns, [[_text(row.get(name)) for name in columns] for row in rows])


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{name} {_text(of)}" for name, of in value.items())
        case list():
            return "; ".join(map(_text, value))
        case _:
            return str(value)
