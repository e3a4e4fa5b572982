"""The rows of offline queries: of requests and of files, in order, in parts, and with values that nothing takes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.errors import InvalidInputError
from caraway.offline.queries.inputs import Files, InputPart, InputRows, open_rows
from caraway.offline.queries.model import ARROW_INPUT, JSON_INPUT, OfflineRequest, Place, StoredRows, folder_of

T = 1_700_000_000_000_000


def request(rows: StoredRows | Place, inputs: tuple[str, ...] = ("A.x",)) -> OfflineRequest:
    return OfflineRequest(inputs=inputs, outputs=("A.y",), timestamp_column="at", rows=rows)


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def stored(folder: Path, name: str, content: bytes, inputs: tuple[str, ...] = ("A.x",)) -> InputRows:
    objects = ObjectFolder(str(folder / "objects"))
    objects.write(f"{folder_of('q')}/{name}", content)
    return open_rows("q", request(StoredRows(name), inputs), objects, Files(local=False))


def in_json(folder: Path, columns: dict[str, Any]) -> InputRows:
    return stored(folder, JSON_INPUT, orjson.dumps(columns))


def in_arrow(folder: Path, table: pa.Table) -> InputRows:
    return stored(folder, ARROW_INPUT, stream(table))


def in_files(folder: Path, *, inputs: tuple[str, ...] = ("A.x",), **place: Any) -> InputRows:
    asked = request(Place(url=f"file://{folder}", **place), inputs)
    return open_rows("q", asked, ObjectFolder(str(folder / ".objects")), Files(local=True))


def whole(rows: InputRows) -> InputPart:
    (part,) = rows.parts(1000, 0)
    return part


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("skip", [0, 1, 6, 20])
@pytest.mark.parametrize("kind", ["json", "arrow", "parquet"])
def test_parts_have_each_row_once_and_in_order(tmp_path: Path, kind: str, size: int, skip: int) -> None:
    table = pa.table({"A.x": list(range(20)), "at": [T + n for n in range(20)], "label": [f"l{n}" for n in range(20)]})
    if kind == "json":
        rows = in_json(tmp_path, table.to_pydict())
    elif kind == "arrow":
        rows = in_arrow(tmp_path, table)
    else:
        # The names of files give the order, and files end amid parts.
        for number, (first, length) in enumerate([(0, 8), (8, 1), (9, 11)]):
            pq.write_table(table.slice(first, length), tmp_path / f"{number}.parquet", row_group_size=3)
        rows = in_files(tmp_path)
    assert rows.count() == 20
    parts = list(rows.parts(size, skip))
    assert [part.rows for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert [value for part in parts for value in part.inputs["A.x"]] == list(range(skip, 20))
    assert [value for part in parts for value in part.timestamps] == [T + n for n in range(skip, 20)]
    assert [value for part in parts for value in part.others["label"].to_pylist()] == [f"l{n}" for n in range(skip, 20)]


FORMS = {
    "json": b'{"x": 1, "at": "2024-05-01", "l": "a"}\n{"x": null, "at": "2024-05-02", "l": "b"}\n',
    "csv": b"x,at,l\n1,2024-05-01,a\n,2024-05-02,b\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_text_files(tmp_path: Path, form: str) -> None:
    (tmp_path / "rows").write_bytes(FORMS[form])
    # Marks of other programs aren't rows.
    (tmp_path / "_SUCCESS").write_bytes(b"")
    part = whole(in_files(tmp_path, format=form, columns={"A.x": "x"}))
    assert part.inputs == {"A.x": [1, None]}
    assert part.others.to_pydict() == {"l": ["a", "b"]}
    assert part.rows == 2


def test_a_csv_file_without_names_and_with_a_delimiter(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"1;2024-05-01 10:00:00\n2;2024-05-02 11:00:00\n")
    part = whole(in_files(tmp_path, format="csv", delimiter=";", headers=("A.x", "at")))
    assert part.inputs == {"A.x": [1, 2]}
    first = datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert part.times is not None
    assert part.times[0] == int(first.timestamp()) * 1_000_000


def test_a_table_of_delta(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"A.x": [1, 2], "at": [T, T]}))
    rows = open_rows(
        "q",
        request(Place(url=f"file://{tmp_path}/t", format="delta")),
        ObjectFolder(str(tmp_path / "objects")),
        Files(local=True),
    )
    assert rows.count() == 2
    assert whole(rows).inputs == {"A.x": [1, 2]}


def test_two_features_may_have_one_column_and_the_times_may_be_an_input(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "at": [T, T]}), tmp_path / "a.parquet")
    part = whole(in_files(tmp_path, inputs=("A.x", "A.z", "A.t"), columns={"A.x": "x", "A.z": "x", "A.t": "at"}))
    assert part.inputs == {"A.x": [1, 2], "A.z": [1, 2], "A.t": [T, T]}
    assert part.timestamps == [T, T]
    assert part.others.column_names == []


@pytest.mark.parametrize(
    ("unit", "value", "us"), [("s", 1_700_000_000, T), ("ms", T // 1000, T), ("us", T, T), ("ns", T * 1000 + 7, T)]
)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_times_of_each_unit(tmp_path: Path, unit: str, value: int, us: int, zone: str | None) -> None:
    at = pa.array([value, None], pa.timestamp(unit, zone))
    part = whole(in_arrow(tmp_path, pa.table({"A.x": [1, 2], "at": at})))
    assert part.times == [us, None]
    assert part.rows == 2


@pytest.mark.parametrize(("unit", "value"), [("s", 10**15), ("ms", 2**61), ("us", 2**62), ("s", -(10**15))])
def test_a_time_that_is_too_far_away_never_becomes_another_time(tmp_path: Path, unit: str, value: int) -> None:
    # Arrow's own conversion to microseconds gives 1970 for 2^61 ms.
    right = {"s": T // 1_000_000, "ms": T // 1000, "us": T}[unit]
    table = pa.table({"A.x": [1, 2], "at": pa.array([value, right], pa.timestamp(unit))})
    part = whole(in_arrow(tmp_path, table))
    assert part.times is None
    assert "can't be read" in repr(part.timestamps[0])
    assert part.timestamps[1] == datetime.fromtimestamp(T / 1e6, UTC).replace(tzinfo=None)


def test_a_value_that_python_has_not_spoils_its_row_only(tmp_path: Path) -> None:
    for column in (pa.array([19_000, 2**31 - 1], pa.date32()), pa.array([0, 2**62], pa.timestamp("us"))):
        part = whole(in_arrow(tmp_path, pa.table({"A.x": column, "at": [T, T]})))
        right, wrong = part.inputs["A.x"]
        assert isinstance(right, date)
        assert "can't be read" in repr(wrong)


def test_categories_and_decimals_are_values(tmp_path: Path) -> None:
    categories = pa.array(["a", "b", "a"]).dictionary_encode()
    decimals = pa.array([Decimal("1.5"), None, Decimal(2)])
    part = whole(in_arrow(tmp_path, pa.table({"A.x": categories, "at": [T] * 3, "d": decimals})))
    assert part.inputs["A.x"] == ["a", "b", "a"]
    assert part.others["d"].to_pylist() == decimals.to_pylist()


OTHERS: list[tuple[list[Any], list[Any]]] = [
    ([1, 2], [1, 2]),
    ([None, None], [None, None]),
    ([1, "a"], ["1", '"a"']),
    ([2**70 / 1, None], [2.0**70, None]),
    ([{}, {}], ["{}", "{}"]),
    ([[{}], None], ["[{}]", None]),
    ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    ([[], [1]], [[], [1]]),
]


@pytest.mark.parametrize(("given", "kept"), OTHERS)
def test_other_columns_can_be_written(tmp_path: Path, given: list[Any], kept: list[Any]) -> None:
    part = whole(in_json(tmp_path, {"A.x": [1, 2], "at": [T, T], "other": given}))
    assert part.others["other"].to_pylist() == kept
    pq.write_table(part.others, pa.BufferOutputStream())


def test_other_columns_of_streams_and_files_can_be_written(tmp_path: Path) -> None:
    table = pa.table({"A.x": [1, 2], "at": [T, T], "o": [{}, {}], "i": pa.array([(1, 2, 3), None])})
    part = whole(in_arrow(tmp_path, table))
    assert part.others["o"].to_pylist() == ["{}", "{}"]
    pq.write_table(part.others, pa.BufferOutputStream())
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "rows").write_bytes(b'{"A.x": 1, "at": 1, "o": {}}\n')
    part = whole(in_files(lines, format="json"))
    assert part.others["o"].to_pylist() == ["{}"]


def test_a_stream_is_checked_before_it_is_read(tmp_path: Path) -> None:
    content = stream(pa.table({"A.x": ["abc", "def"], "at": [T, T]}))
    ends = [offset.to_bytes(4, "little") for offset in (0, 3, 6)]
    assert content.count(b"".join(ends)) == 1
    # Without the check, an end behind the text shows other memory of the process.
    outside = content.replace(b"".join(ends), b"".join([*ends[:2], (5000).to_bytes(4, "little")]))
    for damaged in (outside, content.replace(b"abcdef", b"ab\xffdef"), content[:100], b""):
        with pytest.raises(InvalidInputError, match="no Arrow IPC stream"):
            stored(tmp_path, ARROW_INPUT, damaged)


def test_columns_are_required_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no column A\.x; its columns: at"):
        in_arrow(tmp_path, pa.table({"at": [T]}))
    with pytest.raises(InvalidInputError, match="no column at"):
        in_json(tmp_path, {"A.x": [1]})
    with pytest.raises(InvalidInputError, match="several columns of one name: l"):
        in_arrow(tmp_path, pa.table([pa.array([1])] * 4, names=["A.x", "at", "l", "l"]))
    pq.write_table(pa.table({"x": [1], "at": [T]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="no column gone"):
        in_files(tmp_path, columns={"A.x": "gone"})


def test_files_that_can_t_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"no file at file://{tmp_path}"):
        in_files(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(InvalidInputError, match=f"the rows at file://{tmp_path}"):
        in_files(tmp_path)
    with pytest.raises(InvalidInputError, match="format xml isn't read"):
        in_files(tmp_path, format="xml")
    with pytest.raises(InvalidInputError, match="role_arn"):
        in_files(tmp_path, format="delta", role_arn="arn:aws:iam::1:role/r")


def test_a_line_that_is_wrong_in_a_later_part_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"A.x,at\n1,1\n")
    (tmp_path / "b").write_bytes(b"A.x,at\n1,1\nno number,1\n")
    rows = in_files(tmp_path, format="csv")
    with pytest.raises(InvalidInputError, match=r"the rows at .* can't be read"):
        list(rows.parts(1, 0))


def test_files_of_this_machine_need_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"offline\.local_files"):
        Files(local=False).at(Place(url=f"file://{tmp_path}"))


@pytest.mark.parametrize("url", ["s3://my bucket/p", "ftp://b/p", "file:///etc", "s3://b[/p", "gs://b/p"])
def test_no_error_has_an_access_key(url: str) -> None:
    for secret in ("TOP+SECRET/x", "plain"):
        with pytest.raises(InvalidInputError) as raised:
            Files(local=True, access=("AKIAKEY", secret)).at(Place(url=url))
        shown = f"{raised.value} {raised.value.__cause__!r}"
        assert url in shown
        for spelling in ("AKIAKEY", secret, "TOP%2BSECRET", "SECRET"):
            assert spelling not in shown
