"""The rows of the tables of the specification.

The specification lies beside the repository, not in it; `rows.txt` holds a line for each row: its ID, a tab, its first
cell. This reads them out of the text:

    python -m tests.spec.tables ../shared/spec > tests/spec/rows.txt

An ID is `file:section:number`. `file` is `types`, `datasets`, `featuresets` or `connectors`; `section` the number of
the nearest heading, with `b`, `c`, … for its further tables; `number` counts the rows from 1. A test may name a row by
its first cell as well: `types:4:regex` for `types:4:1`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FILES = {
    "types": "types_and_expressions.md",
    "datasets": "datasets.md",
    "featuresets": "featuresets_and_client.md",
    "connectors": "connectors_and_quality.md",
}

_HEADING = re.compile(r"#+ (\d+(?:\.\d+)*)\.? ")
_RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+\s*$")
# A bar between cells; one behind a backslash is text.
_BAR = re.compile(r"(?<!\\)\|")
_MARKS = re.compile(r"[`*\\]|\s+(?=\s)")


def plain(cell: str) -> str:
    """Take the marks of Markdown out of a cell; a cell of marks alone stays."""
    return _MARKS.sub("", cell).strip() or cell.strip("` ")


def rows_of(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the ID and the first cell of all rows of all tables below numbered headings."""
    section, tables, lines = "", 0, text.splitlines()
    for number, line in enumerate(lines):
        if heading := _HEADING.match(line):
            section, tables = heading[1], 0
        if section and _RULE.match(line):
            tables += 1
            letter = "" if tables == 1 else chr(ord("a") + tables - 1)
            for row, cell in enumerate(_first_cells(lines[number + 1 :]), start=1):
                yield f"{name}:{section}{letter}:{row}", cell


def _first_cells(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield plain(_BAR.split(line)[1])


def main() -> None:
    """Print the rows of all tables in a folder with the specification."""
    folder = Path(sys.argv[1])
    for name, file in FILES.items():
        for row, cell in rows_of(name, (folder / file).read_text()):
            print(f"{row}\t{cell}")


if __name__ == "__main__":
    main()
