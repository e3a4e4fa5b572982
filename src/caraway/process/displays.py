"""Compact tables in HTML, as notebooks show them.

All text is escaped here and nowhere else: names, descriptions and messages come from definitions and servers that the
reader of a notebook needn't trust. Colours are those of the notebook, dark or light; lines are a transparent grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# The greatest number of rows of a table, so that a large commit doesn't fill a notebook's file.
MAX_ROWS = 200
# The greatest number of characters of a cell. Names and reasons are shorter; a longer text is data, and is cut.
MAX_TEXT = 500

_LINE = "1px solid rgba(128,128,128,.35)"
_ROOT = "font-size:.9em;line-height:1.35;margin:.3em 0;color:inherit"
_TABLE = "border-collapse:collapse;margin:.25em 0 .6em;color:inherit;background:transparent"
_HEAD = f"text-align:left;padding:.15em .7em;border-bottom:{_LINE};font-weight:600;background:transparent"
_CELL = (
    f"text-align:left;padding:.15em .7em;border-bottom:{_LINE};vertical-align:top;background:transparent;"
    "white-space:pre-wrap;max-width:48em;overflow-wrap:anywhere"
)
_FAINT = "opacity:.7"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption; it isn't shown if there are no rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def html(title: str, facts: Sequence[str] = (), tables: Sequence[Table] = ()) -> str:
    """Return the HTML of a title, facts beside it, and tables."""
    head = f"<strong>{_text(title)}</strong>"
    if shown := " · ".join(_text(fact) for fact in facts if fact):
        head += f' <span style="{_FAINT}">{shown}</span>'
    return f'<div style="{_ROOT}">{head}{"".join(_table(table) for table in tables if table.rows)}</div>'


def _table(table: Table) -> str:
    head = "".join(f'<th style="{_HEAD}">{_text(column)}</th>' for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_text(cell)}</td>' for cell in row) + "</tr>"
        for row in table.rows[:MAX_ROWS]
    )
    rest = len(table.rows) - MAX_ROWS
    more = f'<div style="{_FAINT}">and {rest:,} more</div>' if rest > 0 else ""
    caption = f'<div style="{_FAINT};margin-top:.4em">{_text(table.caption)}</div>' if table.caption else ""
    return f'{caption}<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}'


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")
