"""Answers of a server that are plain values for programs, and tables in notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caraway.process.displays import Table, html

# The most columns of a table in a notebook. The columns that come first tell most, so the others are left out.
MAX_COLUMNS = 12


class Answer(dict[str, Any]):
    """An answer with several members: those that are lists of objects are tables in a notebook, others facts."""

    def __init__(self, title: str, content: Mapping[str, Any]) -> None:
        """Have this content, and be called by a title."""
        super().__init__(content)
        self._title = title

    def _repr_html_(self) -> str:
        # Notebooks call the method of this name to show an object as HTML.
        tables = {name: value for name, value in self.items() if _is_table(value)}
        facts = [f"{name}: {_text(value)}" for name, value in self.items() if name not in tables and value is not None]
        return html(self._title, facts, [_table_of_rows(name, rows) for name, rows in tables.items()])


class Answers(list[dict[str, Any]]):
    """An answer that is a list of objects, which are the rows of a table in a notebook."""

    def __init__(self, title: str, content: Iterable[dict[str, Any]]) -> None:
        """Have this content, and be called by a title."""
        super().__init__(content)
        self._title = title

    def _repr_html_(self) -> str:
        return html(self._title, [f"{len(self):,}"], [_table_of_rows("", self)])


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


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
