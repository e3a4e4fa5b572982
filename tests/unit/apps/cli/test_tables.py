"""Tables of answers: beside each other while they fit, else downwards."""

import io

import pytest
from rich.console import Console

from caraway.apps.cli import tables
from caraway.apps.cli.tables import Shown, show_columns


def shown(monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[object]], width: int = 60) -> str:
    written = io.StringIO()
    monkeypatch.setattr(tables, "out", Console(file=written, width=width, highlight=False))
    show_columns(columns, Shown.TABLE)
    return written.getvalue()


def test_a_narrow_answer_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line.split() for line in shown(monkeypatch, {"Card.card": [1, 2], "Card.count": [3, None]}).splitlines()]
    assert lines == [["Card.card", "Card.count"], ["1", "3"], ["2"]]


def test_a_wide_answer_has_a_line_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, list[object]] = {f"Card.feature_{number}": [number, -number] for number in range(31)}
    text = shown(monkeypatch, columns)
    assert "…" not in text
    lines = [line.split() for line in text.splitlines()]
    assert (lines[0], lines[32]) == (["row", "1"], ["row", "2"])
    assert lines[1:32] == [[f"Card.feature_{number}", str(number)] for number in range(31)]
    assert lines[33:] == [[f"Card.feature_{number}", str(-number)] for number in range(31)]
