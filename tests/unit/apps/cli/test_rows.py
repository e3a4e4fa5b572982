"""Rows from files, the standard input and the command line; mistakes name the place."""

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest

from caraway.apps.cli.rows import Format, batches, of_options, read_rows
from caraway.errors import InvalidInputError

ROWS = [{"user": 1, "name": "Ann"}, {"user": 2, "name": None}]


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_all_formats_give_the_same_rows(tmp_path: Path) -> None:
    pd.DataFrame(ROWS).to_parquet(tmp_path / "rows.parquet")
    lines = "".join(json.dumps(row) + "\n\n" for row in ROWS)
    sources = [
        json.dumps(ROWS),
        '{"user": [1, 2], "name": ["Ann", null]}',
        file(tmp_path, "rows.json", json.dumps(ROWS)),
        file(tmp_path, "rows.jsonl", lines),
        str(tmp_path / "rows.parquet"),
    ]
    assert [list(read_rows(source, None)) for source in sources] == [ROWS] * len(sources)
    # CSV has no types; an empty cell is null. A byte order mark, which spreadsheets write, isn't part of a name.
    found = list(read_rows(file(tmp_path, "rows.csv", '\ufeffuser,name\n1,"Ann"\n2,\n'), None))
    assert found == [{"user": "1", "name": "Ann"}, {"user": "2", "name": None}]


def test_values_of_parquet_become_values_of_json(tmp_path: Path) -> None:
    at = pd.Timestamp("2026-01-31T12:00:00.000001", tz="Europe/Berlin")
    table = pd.DataFrame({"at": [at], "day": [at.date()], "sum": [Decimal("1.50")], "raw": [b"\x00"], "many": [[1, 2]]})
    table.to_parquet(tmp_path / "rows.parquet")
    (row,) = read_rows(str(tmp_path / "rows.parquet"), None)
    assert json.loads(json.dumps(row)) == {
        "at": "2026-01-31T11:00:00.000001Z",
        "day": "2026-01-31",
        "sum": "1.50",
        "raw": {"base64": "AA=="},
        "many": [1, 2],
    }


def test_numbers_that_the_json_of_a_request_cannot_have_are_sent_as_text(tmp_path: Path) -> None:
    numbers = '{"great": 18446744073709551616, "small": -9223372036854775809, "up": Infinity, "down": -Infinity}'
    sent = {"great": "18446744073709551616", "small": "-9223372036854775809", "up": "inf", "down": "-inf"}
    for source in (numbers, file(tmp_path, "rows.jsonl", numbers), file(tmp_path, "rows.json", f"[{numbers}]")):
        assert orjson.loads(orjson.dumps(list(read_rows(source, None)))) == [sent]
    (row,) = read_rows('{"most": 18446744073709551615, "least": -9223372036854775808, "nothing": NaN}', None)
    assert orjson.loads(orjson.dumps(row)) == {"most": 2**64 - 1, "least": -(2**63), "nothing": None}


def test_the_standard_input_has_json_lines_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"user": 1}\n{"user": 2}\n'))
    assert list(read_rows("-", None)) == [{"user": 1}, {"user": 2}]
    monkeypatch.setattr("sys.stdin", io.StringIO("user\n7\n"))
    assert list(read_rows("-", Format.CSV)) == [{"user": "7"}]


def test_lines_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def __init__(self) -> None:
            self.read = 0

        def readline(self, limit: int) -> str:
            self.read += 1
            return '{"user": 1}\n'

    endless: Any = Endless()
    monkeypatch.setattr("sys.stdin", endless)
    assert next(batches(read_rows("-", None), 3)) == [{"user": 1}] * 3
    assert endless.read == 3


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("rows.jsonl", '{"a": 1}\n{"a": \n', "line 2 isn't JSON"),
        ("rows.jsonl", "[1]\n", "line 1: an object is expected"),
        ("rows.json", "[1]", "a list of objects is expected"),
        ("rows.json", '{"a": [1], "b": [1, 2]}', "different lengths"),
        ("rows.csv", "a,b\n1,2\n3\n", "line 3: a value for each column"),
        ("rows.csv", "a\n1,2\n", "line 2: a value for each column"),
        ("rows.csv", 'a\n"1\n', "isn't CSV"),
        ("rows.parquet", "no", "isn't Parquet"),
        ("rows.dat", "1", "say it with --format"),
    ],
)
def test_mistakes_name_the_place(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        list(read_rows(file(tmp_path, name, text), None))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[{'a': 1}]", r"the argument, \[{'a': 1}\], isn't JSON: Expecting property name .*line 1 column 3"),
        ('{"a": 1 "b": 2}', r'the argument, {"a": 1 "b": 2}, isn\'t JSON: Expecting .* column 9 .*single quotes'),
        (f"[{'1, ' * 1_000}", r"the argument, \[1, 1, .*… \(3,001 characters\), isn't JSON"),
        ("[1]", r"the argument, \[1\]: a list of objects is expected"),
    ],
)
def test_json_that_is_an_argument_is_shown_with_the_mistake(text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        list(read_rows(text, None))


def test_what_is_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="can't be read: No such file"):
        list(read_rows(str(tmp_path / "none.csv"), None))
    (tmp_path / "binary.csv").write_bytes(b"a\n\xff\n")
    with pytest.raises(InvalidInputError, match="isn't text in UTF-8"):
        list(read_rows(str(tmp_path / "binary.csv"), None))
    with pytest.raises(InvalidInputError, match="give a file"):
        list(read_rows("-", Format.PARQUET))


def test_options_make_a_row() -> None:
    assert of_options(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    for wrong, expected in ((["a"], "name=value"), (["=1"], "name=value"), (["a=1", "a=2"], "given twice")):
        with pytest.raises(InvalidInputError, match=expected):
            of_options(wrong)
