"""The output of answers with columns: as a table, as CSV or as JSON."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

from rich.markup import escape
from rich.measure import Measurement

from caraway.apps.cli.output import out, plain_table
from caraway.apps.cli.remote import show_json

# A width in characters that no table has, so that the table's own width is measured.
WIDEST = 1_000_000


class Shown(StrEnum):
    """The form in which an answer is shown."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def show_columns(columns: Mapping[str, Sequence[object]], shown: Shown) -> None:
    """Print columns of equal length."""
    rows = zip(*columns.values(), strict=True)
    match shown:
        case Shown.JSON:
            show_json(columns)
        case Shown.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(value) for value in row] for row in rows)
        case Shown.TABLE:
            table = plain_table(*map(escape, columns))
            for row in rows:
                table.add_row(*(escape(_cell(value)) for value in row))
            if Measurement.get(out, out.options.update(width=WIDEST), table).maximum <= out.width:
                out.print(table)
            else:
                _show_downwards(columns)


def _show_downwards(columns: Mapping[str, Sequence[object]]) -> None:
    """Print a table for each row, with a line for each column: the columns don't fit beside each other."""
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        table = plain_table(f"row {number}", "")
        for name, value in zip(columns, row, strict=True):
            table.add_row(escape(name), escape(_cell(value)))
        out.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
