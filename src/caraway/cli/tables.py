"""The output of answers with columns: as a table, as CSV or as JSON."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

from rich.markup import escape

from caraway.cli.output import out, plain_table
from caraway.cli.remote import show_json


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
            out.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
