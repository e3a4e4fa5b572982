"""Tests of the conversion of raw rows to rows of a dataset."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import cloudpickle
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.rows.batches import LeftOut, Stage
from caraway.compute.rows.records import map_records, rejection, typed_rows
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    OneOfType,
    RegexType,
    StructType,
    optional,
)
from caraway.errors import InvalidInputError
from caraway.expr import Expr, col, lit
from caraway.expr.nodes import Node
from caraway.graph.connectors import S3Connector, WebhookConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.sources import Cdc, Computed, Constant, Ref, SampleSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec
from caraway.graph.systems import CSVFormat, S3System

NOON = 1_700_000_000_000_000
NOON_TEXT = "2023-11-14T22:13:20Z"

SOURCE = SourceSpec(
    connector=WebhookConnector(name="hives", endpoint="scale", retention_us=0), cdc=Cdc.APPEND, disorder_us=0
)


def dataset(*, keys: tuple[str, ...] = (), **fields: DataType) -> DatasetSpec:
    return DatasetSpec(
        name="Weighing",
        version=1,
        history_us=0,
        fields=(
            *(FieldSpec(name=name, dtype=dtype, key=name in keys) for name, dtype in fields.items()),
            FieldSpec(name="at", dtype=DATETIME, timestamp=True),
        ),
        index=None,
        sources=(SOURCE,),
    )


WEIGHING = dataset(hive=STRING, grams=FLOAT)


def frame(**columns: list[Any]) -> pd.DataFrame:
    rows = len(next(iter(columns.values())))
    return pd.DataFrame({**columns, "at": [NOON_TEXT] * rows})


def computed(expr: Any, **schema: DataType) -> Computed:
    node: Node = expr.node
    return Computed(by=node, schema=tuple(schema.items()))


def function(call: Callable[[pd.DataFrame], Any], **schema: DataType) -> Computed:
    shipped = PythonFunction(name="f", source_code="", pickled=cloudpickle.dumps(call))
    return Computed(by=shipped, schema=tuple(schema.items()))


def made(**preproc: Ref | Constant | Computed) -> SourceSpec:
    return replace(SOURCE, preproc=tuple(preproc.items()))


def test_rows_come_in_stored_form() -> None:
    rows = typed_rows(WEIGHING, SOURCE, frame(hive=["a", "b"], grams=[1, "2.5"]))
    assert rows == [{"hive": "a", "grams": 1.0, "at": NOON}, {"hive": "b", "grams": 2.5, "at": NOON}]


def test_an_empty_frame_gives_nothing() -> None:
    assert typed_rows(WEIGHING, SOURCE, pd.DataFrame()) == []


@pytest.mark.spec("connectors:6.2b:extra columns/members in payload")
def test_other_columns_and_members_are_ignored() -> None:
    nested = dataset(scale=StructType("Scale", (("serial", STRING),)))
    raw = frame(scale=[{"serial": "x", "color": "red"}], wind=[3])
    assert typed_rows(nested, SOURCE, raw) == [{"scale": ["x"], "at": NOON}]


@pytest.mark.spec("connectors:6.2b:column missing, field required", "connectors:6.2b:column missing, field Optional")
@pytest.mark.spec("connectors:12:missing Optional column")
def test_a_frame_has_every_column_and_records_may_leave_out_what_may_be_null() -> None:
    optional_wind = dataset(hive=STRING, wind=optional(FLOAT))
    with pytest.raises(InvalidInputError) as caught:
        typed_rows(optional_wind, SOURCE, frame(hive=["a"]))
    assert all(fact in str(caught.value) for fact in ("Weighing", "[Webhook: hives](endpoint=scale)", "wind", "hive"))
    with pytest.raises(InvalidInputError, match="grams"):
        typed_rows(WEIGHING, SOURCE, frame(hive=["a"]))
    mapped = map_records(optional_wind, SOURCE, [{"hive": "a", "at": NOON_TEXT}, {"wind": 1.0, "at": NOON_TEXT}])
    assert mapped.rows == ((0, {"hive": "a", "wind": None, "at": NOON}),)
    assert [(e.row, e.field, e.stage) for e in mapped.errors] == [(1, "hive", Stage.CAST)]


@pytest.mark.spec(
    "connectors:0b:run", "connectors:6.2b:key or timestamp null", "connectors:6.2b:bad row in a local log call"
)
def test_the_first_bad_cell_is_named() -> None:
    keyed = dataset(keys=("hive",), hive=STRING, grams=BetweenType(FLOAT, 0.0, 9.0))
    for raw, facts in (
        ({"hive": ["a", None], "grams": [1, 2]}, ["hive", "row 1", "null"]),
        ({"hive": ["a", "b"], "grams": [1, 10]}, ["grams", "row 1", "10"]),
        ({"hive": ["a", "b"], "grams": ["x", "y"]}, ["grams", "row 0", "'x'"]),
    ):
        with pytest.raises(ValueError) as caught:
            typed_rows(keyed, SOURCE, frame(**raw))
        assert all(fact in str(caught.value) for fact in ("Weighing", "hives", *facts))
    with pytest.raises(InvalidInputError, match="field at, row 0"):
        typed_rows(keyed, SOURCE, pd.DataFrame({"hive": ["a"], "grams": [1], "at": [pd.NaT]}))


@pytest.mark.spec("connectors:6.2b:column name matching")
def test_names_of_columns_match_in_case() -> None:
    with pytest.raises(InvalidInputError, match="hive"):
        typed_rows(WEIGHING, SOURCE, frame(Hive=["a"], grams=[1]))


CASTS = [
    pytest.param(INT, [1, True, 1.0, "1"], 1, marks=pytest.mark.spec("connectors:6.2:int (64-bit)")),
    pytest.param(FLOAT, [1, "1", True, 1.0], 1.0, marks=pytest.mark.spec("connectors:6.2:float")),
    pytest.param(STRING, ["1", 1], "1", marks=pytest.mark.spec("connectors:6.2:str")),
    pytest.param(STRING, [True], "true", marks=pytest.mark.spec("connectors:6.2:str")),
    pytest.param(BOOL, [True, 1, "true", 0.5], True, marks=pytest.mark.spec("connectors:6.2:bool")),
    pytest.param(DecimalType(2), [1.25, "1.25"], "1.25", marks=pytest.mark.spec("connectors:6.2:Decimal[s]")),
    pytest.param(BYTES, [b"a", "a", {"base64": "YQ=="}], b"a", marks=pytest.mark.spec("connectors:6.2:bytes")),
    pytest.param(DATETIME, [NOON_TEXT], NOON, marks=pytest.mark.spec("connectors:6.2:datetime")),
    pytest.param(
        DATE,
        [date(1970, 1, 2), "1970-01-02", datetime(1970, 1, 2, 23, tzinfo=UTC)],
        1,
        marks=pytest.mark.spec("connectors:6.2:date"),
    ),
    pytest.param(
        optional(INT), [None, pd.NA, float("nan")], None, marks=pytest.mark.spec("connectors:6.2:Optional[T]")
    ),
    pytest.param(ListType(INT), [[1, "2"], (1, 2.0)], [1, 2], marks=pytest.mark.spec("connectors:6.2:List[T]")),
    pytest.param(MapType(INT), [{"a": "1"}], {"a": 1}, marks=pytest.mark.spec("connectors:6.2:Dict[str,T]")),
    pytest.param(
        StructType("S", (("a", DATETIME), ("b", optional(INT)))),
        [{"a": NOON_TEXT, "c": 1}],
        [NOON, None],
        marks=pytest.mark.spec("connectors:6.2:struct"),
    ),
    pytest.param(EmbeddingType(2), [[1, 2.5]], [1.0, 2.5], marks=pytest.mark.spec("connectors:6.2:Embedding[n]")),
    pytest.param(BetweenType(INT, 0, 5), [5, "5"], 5, marks=pytest.mark.spec("connectors:6.2:between, oneof")),
    pytest.param(OneOfType(INT, (1, 2)), ["2"], 2, marks=pytest.mark.spec("connectors:6.2:between, oneof")),
    pytest.param(
        RegexType("[a-z]+"),
        ["abc"],
        "abc",
        marks=pytest.mark.spec("connectors:6.2:regex(p)", "connectors:12:regex restriction"),
    ),
    pytest.param(
        DATETIME,
        [1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000, 1_700_000_000_000_000_000],
        NOON,
        marks=pytest.mark.spec("connectors:6.3:1"),
    ),
    pytest.param(DATETIME, [1_700_000_000.9], NOON, marks=pytest.mark.spec("connectors:6.3:float")),
    pytest.param(
        DATETIME,
        ["1700000000", "1700000000000"],
        NOON,
        marks=pytest.mark.spec("connectors:6.3:digit-only string", "connectors:12:7"),
    ),
    pytest.param(
        DATETIME, ["19700102"], 19_700_102_000_000, marks=pytest.mark.spec("connectors:6.3:digit-only string")
    ),
    pytest.param(
        DATETIME,
        ["2023-11-14T22:13:20Z", "2023-11-14 23:13:20.000+01:00"],
        NOON,
        marks=pytest.mark.spec("connectors:6.3:4"),
    ),
    pytest.param(
        DATETIME,
        ["2023-11-14T22:13:20", datetime(2023, 11, 14, 22, 13, 20)],  # noqa: DTZ001 (what is tested)
        NOON,
        marks=pytest.mark.spec("connectors:6.3:without zone"),
    ),
    pytest.param(
        DATETIME,
        ["Tue, 14 Nov 2023 23:13:20 +0100"],
        NOON,
        marks=pytest.mark.spec("connectors:6.3:RFC 2822, numeric offset"),
    ),
    pytest.param(
        DATETIME,
        [
            "Tue, 14 Nov 2023 22:13:20 GMT",
            "Tue, 14 Nov 2023 17:13:20 EST",
            "Tue, 14 Nov 2023 15:13:20 PDT",
            "Tue, 14 Nov 2023 22:13:20 XYZ",
        ],
        NOON,
        marks=pytest.mark.spec("connectors:6.3:RFC 2822, alphabetic zone"),
    ),
    pytest.param(DATETIME, [date(1970, 1, 2)], 86_400_000_000, marks=pytest.mark.spec("connectors:6.3:8")),
    pytest.param(
        DATETIME, ["1970-01-01T00:00:00.123456999Z"], 123_456, marks=pytest.mark.spec("connectors:6.3:precision")
    ),
]


@pytest.mark.parametrize(("dtype", "values", "stored"), CASTS)
def test_what_a_field_takes(dtype: DataType, values: list[Any], stored: object) -> None:
    typed = dataset(value=dtype)
    records = [{"value": value, "at": NOON_TEXT} for value in values]
    mapped = map_records(typed, SOURCE, records)
    assert mapped.errors == ()
    assert [row["value"] for _, row in mapped.rows] == [stored] * len(values)
    raw = pd.DataFrame({"value": pd.Series(values, dtype=object), "at": NOON_TEXT})
    assert [row["value"] for row in typed_rows(typed, SOURCE, raw)] == [stored] * len(values)


REFUSALS = [
    pytest.param(INT, [1.5, "x", 2**63, None], marks=pytest.mark.spec("connectors:6.2:int (64-bit)")),
    pytest.param(FLOAT, ["x", None], marks=pytest.mark.spec("connectors:6.2:float")),
    pytest.param(STRING, [None], marks=pytest.mark.spec("connectors:6.2:str")),
    pytest.param(BOOL, ["yes"], marks=pytest.mark.spec("connectors:6.2:bool")),
    pytest.param(DecimalType(2), ["x"], marks=pytest.mark.spec("connectors:6.2:Decimal[s]")),
    pytest.param(DATE, [5], marks=pytest.mark.spec("connectors:6.2:date")),
    pytest.param(ListType(INT), [[1.5], [None], 3], marks=pytest.mark.spec("connectors:6.2:List[T]")),
    pytest.param(MapType(INT), [{1: 1}], marks=pytest.mark.spec("connectors:6.2:Dict[str,T]")),
    pytest.param(StructType("S", (("a", INT),)), [{}], marks=pytest.mark.spec("connectors:6.2:struct")),
    pytest.param(EmbeddingType(2), [[1.0]], marks=pytest.mark.spec("connectors:6.2:Embedding[n]")),
    pytest.param(BetweenType(INT, 0, 5, strict_max=True), [5], marks=pytest.mark.spec("connectors:6.2:between, oneof")),
    pytest.param(OneOfType(INT, (1, 2)), [3], marks=pytest.mark.spec("connectors:6.2:between, oneof")),
    pytest.param(RegexType("[a-z]+"), ["1abc"], marks=pytest.mark.spec("connectors:6.2:regex(p)")),
    pytest.param(DATETIME, ["soon", True, {}], marks=pytest.mark.spec("connectors:6.3:anything else")),
]


@pytest.mark.parametrize(("dtype", "values"), REFUSALS)
def test_what_a_field_refuses(dtype: DataType, values: list[Any]) -> None:
    typed = dataset(value=dtype)
    mapped = map_records(typed, SOURCE, [{"value": value, "at": NOON_TEXT} for value in values])
    assert mapped.rows == ()
    assert [(error.row, error.field) for error in mapped.errors] == [(n, "value") for n in range(len(values))]


@pytest.mark.spec("connectors:6.2b:CSV empty cell")
def test_an_empty_cell_of_a_text_file_is_null_where_it_is_no_text() -> None:
    lake = S3Connector(system=S3System(name="lake"), bucket="b", prefix="p", format=CSVFormat())
    source = replace(SOURCE, connector=lake)
    wide = dataset(plain=STRING, text=optional(STRING), count=optional(INT), pattern=RegexType(".*"))
    raw = {"plain": "", "text": "", "count": "", "pattern": "", "at": NOON_TEXT}
    expected = {"plain": "", "text": None, "count": None, "pattern": "", "at": NOON}
    assert map_records(wide, source, [raw]).rows == ((0, expected),)
    assert [e.field for e in map_records(dataset(count=INT), source, [raw]).errors] == ["count"]
    # In JSON an empty text is a text.
    assert map_records(wide, SOURCE, [{**raw, "count": 1}]).rows[0][1]["text"] == ""


def test_a_plain_reference_is_another_column() -> None:
    rows = typed_rows(WEIGHING, made(hive=Ref(path=("id",))), frame(id=["a"], hive=["never"], grams=[1]))
    assert rows == [{"hive": "a", "grams": 1.0, "at": NOON}]


@pytest.mark.spec("types:15b:P6")
def test_a_nested_reference_leads_into_structs() -> None:
    source = made(hive=Ref(path=("device", "serial", "text")))
    nested = dataset(hive=optional(STRING), grams=FLOAT)
    payloads: list[Any] = [{"serial": {"text": "a"}}, {"serial": None}, {}, None]
    rows = typed_rows(nested, source, frame(device=payloads, grams=[1, 2, 3, 4]))
    assert [row["hive"] for row in rows] == ["a", None, None, None]
    absent = map_records(nested, source, [{"grams": 1, "at": NOON_TEXT}])
    assert absent.rows[0][1]["hive"] is None
    with pytest.raises(InvalidInputError, match=r"preproc, field hive, row 0: device\[serial\]\[text\]"):
        typed_rows(nested, source, frame(device=[["a"]], grams=[1]))
    with pytest.raises(InvalidInputError, match="device"):
        typed_rows(nested, source, frame(grams=[1]))


def test_a_reference_to_what_a_record_lacks_is_an_error_of_that_record() -> None:
    mapped = map_records(
        WEIGHING,
        made(hive=Ref(path=("id",))),
        [{"id": "a", "grams": 1, "at": NOON_TEXT}, {"grams": 1, "at": NOON_TEXT}],
    )
    assert [number for number, _ in mapped.rows] == [0]
    assert [(e.row, e.stage, e.field) for e in mapped.errors] == [(1, Stage.PREPROC, "hive")]


def test_constants_lie_over_the_payload() -> None:
    source = made(
        hive=Constant(value="north", dtype=STRING),
        at=Constant(value=NOON, dtype=DATETIME),
        grams=Constant(value=1, dtype=INT),
    )
    assert typed_rows(WEIGHING, source, pd.DataFrame({"hive": ["never"], "x": [1]})) == [
        {"hive": "north", "grams": 1.0, "at": NOON}
    ]
    epoch = made(at=Constant(value=1_700_000_000, dtype=INT))
    assert typed_rows(WEIGHING, epoch, pd.DataFrame({"hive": ["a"], "grams": [1]}))[0]["at"] == NOON


@pytest.mark.spec("connectors:2.5:schema columns at run", "connectors:2.5:expression input types")
@pytest.mark.spec("types:15b:P1", "types:15b:P2", "types:15:source(preproc={field: eval(e, schema={…})})")
def test_expressions_read_fields_and_declared_columns() -> None:
    source = made(grams=computed(col("kg") * lit(1000.0), kg=FLOAT))
    rows = typed_rows(WEIGHING, source, frame(hive=["a", "b"], kg=["1.5", 2]))
    assert [row["grams"] for row in rows] == [1500.0, 2000.0]
    # If the schema has the raw column of the name that is made, the expression reads that one.
    doubled = made(grams=computed(col("grams") * lit(2.0), grams=FLOAT))
    assert typed_rows(WEIGHING, doubled, frame(hive=["a"], grams=[4]))[0]["grams"] == 8.0
    records: list[dict[str, Any]] = [
        {"hive": "a", "kg": "heavy", "at": NOON_TEXT},
        {"hive": "a", "kg": None, "at": NOON_TEXT},
        {"hive": "a", "at": NOON_TEXT},
        {"hive": "a", "kg": 2, "at": NOON_TEXT},
    ]
    mapped = map_records(WEIGHING, source, records)
    assert [number for number, _ in mapped.rows] == [3]
    assert [(e.row, e.stage, e.field) for e in mapped.errors] == [(n, Stage.PREPROC, "grams") for n in range(3)]
    assert "kg" in mapped.errors[0].message


def test_entries_run_in_order_and_references_read_the_payload() -> None:
    wide = dataset(a=INT, b=INT, c=INT)
    source = made(
        a=Constant(value=10, dtype=INT),
        b=computed(col("a") + lit(1)),
        c=Ref(path=("a",)),
    )
    assert typed_rows(wide, source, frame(a=[1])) == [{"a": 10, "b": 11, "c": 1, "at": NOON}]
    by_function = made(
        a=Constant(value=10, dtype=INT), b=function(lambda df: df["a"] + 1), c=function(lambda df: df["b"] + df["a"])
    )
    assert typed_rows(wide, by_function, frame(a=[1])) == [{"a": 10, "b": 11, "c": 21, "at": NOON}]


@pytest.mark.spec("connectors:12:shared endpoint + preproc")
def test_each_dataset_starts_from_the_payload() -> None:
    raw = frame(hive=["a"], grams=[1])
    kept = raw.copy(deep=True)
    source = made(hive=function(lambda df: df["hive"] + "!"), grams=Constant(value=2, dtype=INT))
    assert typed_rows(WEIGHING, source, raw)[0]["hive"] == "a!"
    pd.testing.assert_frame_equal(raw, kept)
    assert typed_rows(WEIGHING, SOURCE, raw)[0] == {"hive": "a", "grams": 1.0, "at": NOON}


def test_a_null_result_and_a_restriction_are_checked() -> None:
    narrow = dataset(grams=BetweenType(FLOAT, 0.0, 9.0))
    source = made(grams=computed(col("kg") * lit(1000.0), kg=FLOAT))
    mapped = map_records(narrow, source, [{"kg": 0.001, "at": NOON_TEXT}, {"kg": 1, "at": NOON_TEXT}])
    assert [row["grams"] for _, row in mapped.rows] == [1.0]
    # An expression makes a value of the type without its restriction, which the cast checks, after `where`.
    assert [(e.row, e.stage) for e in mapped.errors] == [(1, Stage.CAST)]


@pytest.mark.spec("connectors:2.5:callable", "connectors:2.5:errors", "types:15b:P8")
def test_functions_see_the_whole_payload_and_fail_by_row() -> None:
    source = made(grams=function(lambda df: df["kg"].astype(float) * 1000 + df["extra"]))
    rows = typed_rows(WEIGHING, source, frame(hive=["a", "b"], kg=["1", "2"], extra=[1, 2]))
    assert [row["grams"] for row in rows] == [1001.0, 2002.0]
    records = [{"hive": "a", "kg": kg, "extra": 0, "at": NOON_TEXT} for kg in ("1", "x", "3")]
    mapped = map_records(WEIGHING, source, records)
    assert [number for number, _ in mapped.rows] == [0, 2]
    assert [(e.row, e.stage, e.field) for e in mapped.errors] == [(1, Stage.PREPROC, "grams")]
    assert "ValueError" in mapped.errors[0].message
    # The result of a function goes through the cast of its field.
    with pytest.raises(InvalidInputError, match="field grams, row 0"):
        typed_rows(WEIGHING, made(grams=function(lambda df: df["hive"])), frame(hive=["a"]))
    with pytest.raises(InvalidInputError, match="a Series with a value for each"):
        typed_rows(WEIGHING, made(grams=function(lambda df: 3)), frame(hive=["a"]))


def test_a_declared_column_comes_cast_to_a_function() -> None:
    source = made(grams=function(lambda df: df["kg"] * 1000, kg=FLOAT))
    assert typed_rows(WEIGHING, source, frame(hive=["a"], kg=["1.5"]))[0]["grams"] == 1500.0


def where(condition: Computed, **preproc: Ref | Constant | Computed) -> SourceSpec:
    return replace(made(**preproc), where=condition)


@pytest.mark.spec("connectors:2.6:callable", "connectors:2.6:eval(expr, schema)", "connectors:2.6:null result")
@pytest.mark.spec("types:15b:P7", "types:15:source(where=…)")
def test_where_keeps_what_is_true() -> None:
    raw = frame(hive=["a", "b", None, "c"], grams=[1, 5, 9, 7], kind=["x", "x", "x", "y"])
    by_function = where(function(lambda df: (df["grams"] > 3) & (df["kind"] == "x") & df["hive"].notna()))
    assert [row["hive"] for row in typed_rows(WEIGHING, by_function, raw)] == ["b"]
    maybe = dataset(hive=optional(STRING), grams=FLOAT)
    null_condition = where(computed(col("hive") == lit("b")))
    assert [row["hive"] for row in typed_rows(maybe, null_condition, raw)] == ["b"]
    outside = where(computed(col("kind") == lit("y"), kind=STRING))
    assert [row["hive"] for row in typed_rows(maybe, outside, raw)] == ["c"]


def test_where_runs_after_preproc_and_before_the_cast() -> None:
    wanted = where(computed(col("grams") > lit(1000.0), grams=FLOAT), grams=computed(col("kg") * lit(1000.0), kg=FLOAT))
    # The second row has no hive, which doesn't matter because `where` leaves it out.
    rows = typed_rows(WEIGHING, wanted, frame(hive=["a", None], kg=[2, 1]))
    assert rows == [{"hive": "a", "grams": 2000.0, "at": NOON}]


SMALL = BetweenType(INT, 0, 5)
WITHIN_SMALL = (col("v") >= lit(0)) & (col("v") <= lit(5))


@pytest.mark.parametrize(
    ("dtype", "condition", "kept", "left_out"),
    [
        pytest.param(SMALL, WITHIN_SMALL, 2, 9, id="between"),
        pytest.param(SMALL, WITHIN_SMALL, "2", "9", id="between from text"),
        pytest.param(BetweenType(FLOAT, 0.0, 5.0), col("v") <= lit(5.0), 2.0, 9.0, id="between of float"),
        pytest.param(optional(SMALL), WITHIN_SMALL, 2, 9, id="optional between"),
        pytest.param(optional(SMALL), WITHIN_SMALL, 2, None, id="null"),
        pytest.param(OneOfType(STRING, ("a",)), col("v") == lit("a"), "a", "b", id="oneof"),
        pytest.param(RegexType("a+"), col("v").str.startswith("a"), "aa", "b", id="regex"),
    ],
)
def test_where_leaves_out_rows_that_break_a_restriction(
    dtype: DataType, condition: Expr, kept: object, left_out: object
) -> None:
    restricted = dataset(v=dtype)
    mapped = map_records(
        restricted, where(computed(condition)), [{"v": left_out, "at": NOON_TEXT}, {"v": kept, "at": NOON_TEXT}]
    )
    assert ([number for number, _ in mapped.rows], mapped.errors) == ([1], ())


@pytest.mark.parametrize("by", [computed(WITHIN_SMALL, v=SMALL), function(lambda df: df["v"] <= 5, v=SMALL)])
def test_where_leaves_out_rows_whose_declared_column_breaks_the_restriction_of_its_field(by: Computed) -> None:
    records: list[dict[str, Any]] = [{"v": v, "at": NOON_TEXT} for v in (9, 2)]
    mapped = map_records(dataset(v=SMALL), where(by), records)
    assert ([number for number, _ in mapped.rows], mapped.errors) == ([1], ())
    # A column that is no field of the dataset isn't cast later, so its restriction is checked here.
    outside = map_records(dataset(w=INT), where(by), [{**record, "w": 1} for record in records])
    assert [(e.row, e.stage) for e in outside.errors] == [(0, Stage.WHERE)]


@pytest.mark.parametrize("by", [computed(col("kg") * lit(2), kg=INT), function(lambda df: df["kg"] * 2)])
def test_where_leaves_out_results_of_preproc_that_break_a_restriction(by: Computed) -> None:
    mapped = map_records(
        dataset(v=SMALL, w=INT),
        where(computed(WITHIN_SMALL), v=by, w=computed(col("v") + lit(1))),
        [{"kg": kg, "at": NOON_TEXT} for kg in (1, 4)],
    )
    assert [(number, row["v"], row["w"]) for number, row in mapped.rows] == [(0, 2, 3)]
    assert mapped.errors == ()


def test_what_breaks_a_restriction_and_is_not_left_out_fails_at_the_cast() -> None:
    records: list[dict[str, Any]] = [{"v": v, "at": NOON_TEXT} for v in (2, 9, "x")]
    mapped = map_records(dataset(v=SMALL), where(computed(col("v") > lit(1))), records)
    assert [number for number, _ in mapped.rows] == [0]
    assert [(e.row, e.stage, e.field) for e in mapped.errors] == [(1, Stage.CAST, "v"), (2, Stage.WHERE, "v")]
    assert "expected between(int, 0, 5" in mapped.errors[0].message


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 5))
def test_an_expression_and_a_function_of_one_condition_keep_the_same_rows(values: list[int], most: int) -> None:
    raw, restricted = frame(v=values), dataset(v=SMALL)
    by_expression = typed_rows(restricted, where(computed(col("v") <= lit(most))), raw)
    assert by_expression == typed_rows(restricted, where(function(lambda df: df["v"] <= most)), raw)
    assert [row["v"] for row in by_expression] == [value for value in values if value <= most]


@pytest.mark.spec("connectors:2.6:eval(callable, schema)")
def test_columns_that_where_declares_have_to_be_there() -> None:
    declared = where(function(lambda df: df["kind"] == "x", kind=STRING))
    with pytest.raises(InvalidInputError, match="kind"):
        typed_rows(WEIGHING, declared, frame(hive=["a"], grams=[1]))
    mapped = map_records(
        WEIGHING,
        declared,
        [{"hive": "a", "grams": 1, "at": NOON_TEXT}, {"hive": "a", "grams": 1, "at": NOON_TEXT, "kind": "x"}],
    )
    assert [number for number, _ in mapped.rows] == [1]
    assert [(e.row, e.stage) for e in mapped.errors] == [(0, Stage.WHERE)]


def test_where_that_gives_no_booleans_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="where, row 0: where gives 'a'"):
        typed_rows(WEIGHING, where(function(lambda df: df["hive"])), frame(hive=["a"], grams=[1]))


@pytest.mark.spec("connectors:2.3:since", "connectors:2.3:until", "connectors:2.3:pushdown")
def test_since_is_within_and_until_is_not() -> None:
    bounded = replace(SOURCE, since_us=5, until_us=7)
    why = rejection(WEIGHING, bounded)
    reasons = [why({"hive": "a", "grams": 1.0, "at": at}) for at in range(4, 9)]
    assert reasons == [LeftOut.SINCE, None, None, LeftOut.UNTIL, LeftOut.UNTIL]


def test_two_sources_at_one_instant_split_history() -> None:
    first, second = replace(SOURCE, until_us=5), replace(SOURCE, since_us=5)
    for at in range(3, 8):
        row = {"hive": "a", "grams": 1.0, "at": at}
        assert (rejection(WEIGHING, first)(row) is None) != (rejection(WEIGHING, second)(row) is None)


def test_admission_samples() -> None:
    half = replace(SOURCE, sample=SampleSpec(rate=0.5, using=("hive",)))
    why = rejection(WEIGHING, half)
    reasons = [why({"hive": f"hive {n}", "grams": float(n), "at": n}) for n in range(1000)]
    assert set(reasons) == {None, LeftOut.SAMPLE}
    assert 450 < reasons.count(None) < 550
