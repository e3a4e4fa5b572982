"""Report the rows of the specification's tables that have a test.

    python -m tests.spec.coverage [--all]

Prints a line for each table, and for each row without a test. A test names its rows by `@pytest.mark.spec(...)`; see
`tests.spec.tables` for the IDs. Exit code 1 if a row has no test, or a test names a row that isn't there.
"""

import argparse
import sys
import tomllib
from collections import Counter, defaultdict
from contextlib import redirect_stdout
from difflib import get_close_matches
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.spec.tables import plain

HERE = Path(__file__).parent


class Collector:
    """A pytest plugin that notes which rows the collected tests name."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.named: dict[str, list[str]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the markers of all tests."""
        for item in items:
            for marker in item.iter_markers("spec"):
                for name in marker.args:
                    self.named[name].append(item.nodeid)


def known_rows(text: str) -> dict[str, str]:
    """Read `rows.txt`: ID to first cell."""
    return dict(line.split("\t", 1) for line in text.splitlines())


def aliases(rows: dict[str, str]) -> dict[str, str]:
    """Return all names of rows: IDs, and table and first cell where no other row has the same."""
    named = [(f"{row.rpartition(':')[0]}:{cell}", row) for row, cell in rows.items() if cell]
    count = Counter(name for name, _ in named)
    return {**{name: row for name, row in named if count[name] == 1}, **{row: row for row in rows}}


def canonical(name: str) -> str:
    """Spell a row as `rows.txt` does, however a test marks it up."""
    file, section, row = [*name.split(":", 2), "", ""][:3]
    return f"{file}:{section}:{plain(row)}"


def main() -> int:
    """Print the table; return 1 if something is missing or unknown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="name the tests of every row")
    options = parser.parse_args()
    collector = Collector()
    output = StringIO()
    with redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q"], [collector])
    if code != pytest.ExitCode.OK:
        print(output.getvalue())
        return 1
    rows = known_rows((HERE / "rows.txt").read_text())
    later: dict[str, str] = tomllib.loads((HERE / "later.toml").read_text())["later"]
    names = aliases(rows)
    covered: dict[str, list[str]] = defaultdict(list)
    unknown = []
    for name, tests in collector.named.items():
        if row := names.get(canonical(name)):
            covered[row] += tests
        else:
            near = get_close_matches(canonical(name), names, n=1)
            unknown.append(f"{name} (named by {tests[0]}) is no row{'; meant: ' + near[0] if near else ''}")
    return report(rows, covered, later, unknown, everything=options.all)


def report(
    rows: dict[str, str], covered: dict[str, list[str]], later: dict[str, str], unknown: list[str], *, everything: bool
) -> int:
    """Print what is covered and what isn't; return the exit code."""
    console = Console(width=140, soft_wrap=True)
    tables: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        tables[row.rpartition(":")[0]].append(row)
    shown = Table("table", "rows", "covered", "tests", "", title="Rows of the specification with a test")
    missing: list[str] = []
    postponed = 0
    for table, members in tables.items():
        lacking = [row for row in members if row not in covered]
        tests = len(
            {test for row in members for test in covered[row]} if not lacking or len(lacking) < len(members) else []
        )
        waiting = [row for row in lacking if table in later or row in later]
        notes = dict.fromkeys(later.get(row, later.get(table, "")) for row in waiting)
        shown.add_row(table, str(len(members)), str(len(members) - len(lacking)), str(tests), "; ".join(notes))
        missing += [row for row in lacking if row not in waiting]
        postponed += len(waiting)
    console.print(shown)
    if everything:
        for row, cell in rows.items():
            console.print(f"{row}  {cell}", markup=False)
            for test in covered.get(row, []):
                console.print(f"    {test}", markup=False)
    for row in missing:
        console.print(f"no test: {row}  {rows[row]}", markup=False)
    for problem in unknown:
        console.print(problem, markup=False)
    console.print(
        f"{len(rows)} rows: {len(rows) - len(missing) - postponed} covered, {len(missing)} without a test, "
        f"{postponed} of parts that aren't built yet"
    )
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
