"""Tests every node on Spark against polars, over the values at which engines often differ."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.spark.expressions import SparkScope, compile_node
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    DataType,
    DecimalType,
    EmbeddingType,
    ListType,
    MapType,
    StructType,
    optional,
)
from caraway.errors import DefinitionError
from caraway.expr.nodes import (
    NODE_TYPES,
    Binary,
    BinaryOp,
    DatePart,
    DatetimeLiteral,
    DictContains,
    DictGet,
    DictLen,
    FillNull,
    FromEpoch,
    IsNull,
    JsonExtract,
    ListAt,
    ListCall,
    ListContains,
    ListFilter,
    ListFunction,
    ListMap,
    Literal,
    Log,
    MakeStruct,
    Node,
    Now,
    NumberCall,
    NumberFunction,
    ParseJson,
    Power,
    Ref,
    Repeat,
    Round,
    Since,
    SinceEpoch,
    Split,
    Strftime,
    StringCall,
    StringFunction,
    Strptime,
    StructGet,
    TimeUnit,
    Unary,
    UnaryOp,
    Var,
    When,
    Zip,
)
from caraway.expr.references import walk
from tests.integration.spark.engines import Table, differing

NAN, INF = float("nan"), float("inf")
INTS = [None, 0, 1, -1, 2, -2, 3, 7, -7, 63, 64, 10**9, 2**53 + 1, -(2**63), -(2**63) + 1, 2**63 - 1]
FLOATS = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 0.49999999999999994, 1.005, 2.675, -0.3, 7.3, -7.3, 1e300]
MORE_FLOATS = [1e15, 1e16, 123456789.123, 1e-4, 1e-5, 1e-6, 5e-324, 2.0**53 + 2, 2.0**63, -(2.0**63), 2e-3, INF, -INF]
# The shortest text of the first one isn't the nearest number of as many digits, and those of the others lie in the
# middle between two such numbers.
MORE_FLOATS += [2.0**-44, 2.0**-25, 8.5370635986328125]
TEXTS = [
    None,
    "",
    "a",
    "aB",
    "Straße",
    "日本",
    "a%b_",
    "b",
    "a,b,,c,",
    "ΑΣ ΣΑΣ",
    "İI",
    "😀é",
    "\\E.*",
    "a\\Eb",
    "aaa",
    "\u0345",
]
INSTANTS = [
    None,
    0,
    -1,
    1_709_210_096_789_123,
    -86_400_000_001,
    # At these instants clocks go forward in Paris and back in New York.
    1_711_847_600_000_000,
    1_730_613_599_999_999,
    1_730_613_600_000_000,
    # These are the first and the last day of ISO years, and the end of February in a leap year.
    1_609_459_199_000_000,
    1_104_537_600_000_000,
    951_782_400_500_000,
    -2_208_988_800_000_000,
    # A winter and a summer after 2099, where the tables of polars end.
    4_994_000_000_000_000,
    5_005_000_000_000_000,
    240_005_000_000_000_000,
]
ZONES = [
    "UTC",
    "America/New_York",
    "Asia/Kathmandu",
    "Europe/Paris",
    "Africa/Monrovia",
    "US/Eastern",
    "EST",
    "Etc/GMT+5",
]
PAIR = StructType("Pair", (("a", INT), ("b", optional(FLOAT))))
WIDE = StructType("Pair", (("b", optional(FLOAT)), ("a", FLOAT)))
NULL = Literal(value=None, dtype=None)


def lit(value: object, dtype: DataType) -> Literal:
    return Literal(value=value, dtype=dtype)


X, Y = Ref(name="x"), Ref(name="y")
E = Var(name="e")
ARITHMETIC = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.MOD]
EQUALITIES = [BinaryOp.EQ, BinaryOp.NE]
ORDERINGS = [*EQUALITIES, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE]
EXACT = [f for f in NumberFunction if f.name not in {"SIN", "COS", "TAN", "ARCSIN", "ARCCOS", "ARCTAN"}]
SEARCHES = [StringFunction.CONTAINS, StringFunction.STARTSWITH, StringFunction.ENDSWITH, StringFunction.CONCAT]
TO_TEXT = [StringFunction.LOWER, StringFunction.UPPER, StringFunction.LEN]
FIXED_UNITS = [unit for unit in TimeUnit if unit is not TimeUnit.MONTH]


def binaries(ops: Sequence[BinaryOp]) -> list[Node]:
    return [Binary(op=op, left=X, right=Y) for op in ops]


def numbers(functions: Sequence[NumberFunction]) -> list[Node]:
    rounds = [Round(operand=X, precision=precision) for precision in (0, 1, 2, 10, 301)]
    return [*(NumberCall(function=f, operand=X) for f in functions), *rounds, Unary(op=UnaryOp.NEGATE, operand=X)]


def lists(functions: Sequence[ListFunction]) -> list[Node]:
    return [ListCall(function=f, operand=X) for f in functions]


def same(dtype: DataType, values: Sequence[Any]) -> Table:
    """Return the expressions that all types have, over some values of a type."""
    branches = ((Binary(op=BinaryOp.EQ, left=X, right=Y), X), (IsNull(operand=X), Y))
    nodes = [
        *binaries(EQUALITIES),
        IsNull(operand=X),
        FillNull(operand=X, fill=Y),
        FillNull(operand=X, fill=NULL),
        When(branches=branches, otherwise=None),
        When(branches=branches, otherwise=lit(next(value for value in values if value is not None), dtype)),
        When(branches=((NULL_TRUTH, Y),), otherwise=X),
        Repeat(value=X, by=lit(2, INT)),
        Binary(op=BinaryOp.EQ, left=X, right=NULL),
    ]
    return Table({"x": (optional(dtype), values), "y": (optional(dtype), values)}, nodes)


NULL_TRUTH = lit(None, optional(BOOL))
TRUE, FALSE = (Literal(value=value, dtype=BOOL) for value in (True, False))
COMMON_LIST = [ListFunction.LEN, ListFunction.HAS_NULL]
NUMERIC_LIST = [*COMMON_LIST, ListFunction.SUM, ListFunction.MIN, ListFunction.MAX, ListFunction.MEAN]
FLOAT_LISTS = [
    None,
    [],
    [0.0, -0.0],
    [-0.0],
    [1.5, None],
    [1e300, 1e300, -1e300],
    [0.1] * 40,
    [INF, -INF],
    [INF, 2.0],
    [None],
]
INT_LISTS = [None, [], [3], [1, 2], [1, None], [2**63 - 1, 1], [None], [2, 2]]
MAPS = [None, {}, {"a": 1}, {"a": 1, "b": None}, {"": None}, {"b": None, "é": 3}]
PAIRS = [None, [1, None], [1, 0.0], [1, -0.0], [2, INF]]
DATE_FORMATS = [
    "%Y-%m-%dT%H:%M:%S%.f%:z", "%C %y %-m/%_d %e %j", "%k %l %I %p %P", "%s %f %3f %6f %9f", "%.3f%.6f%.9f",
    "%u %w %U %W %V %G %g",
    "%b %B %h %a %A", "%z %+", "%D %x %F %v %R %T %X %r %c %% %t %n", "é😀", "", "%_Y %0e %-j %_H",
]  # fmt: skip

A_NAN = Binary(op=BinaryOp.MUL, left=X, right=Binary(op=BinaryOp.DIV, left=Y, right=Y))
TWO_NANS = Repeat(value=A_NAN, by=lit(2, INT))
OF_NAN: list[Node] = [
    *(Binary(op=op, left=A_NAN, right=X) for op in ORDERINGS),
    *(Binary(op=op, left=A_NAN, right=A_NAN) for op in ORDERINGS),
    *(NumberCall(function=f, operand=A_NAN) for f in EXACT),
    ListCall(function=ListFunction.MAX, operand=TWO_NANS),
    ListContains(operand=TWO_NANS, item=A_NAN),
    IsNull(operand=A_NAN),
]

ANY_TYPE: list[tuple[str, DataType, Sequence[Any]]] = [
    ("int", INT, INTS[:4]),
    ("float", FLOAT, [None, 0.0, -0.0, INF]),
    ("bool", BOOL, [None, True, False]),
    ("text", STRING, [None, "", "é"]),
    ("instant", DATETIME, [None, 0, -1]),
    ("date", DATE, [None, 0, -1]),
    ("bytes", BYTES, [None, b"", b"\x00\xff"]),
    ("decimal", DecimalType(2), [None, "0.00", "-1.50", "99999999999999999999999999.99"]),
    ("list", ListType(optional(FLOAT)), [None, [], [None], [0.0], [-0.0, INF]]),
    ("dict", MapType(optional(INT)), MAPS),
    ("struct", PAIR, PAIRS),
    ("list of dicts", ListType(MapType(INT)), [None, [], [{}], [{"a": 1}, {}]]),
    ("dict of dicts", MapType(MapType(INT)), [None, {}, {"a": {}}, {"a": {"b": 1}}]),
    ("list of structs", ListType(PAIR), [None, [], [[1, None]], [[1, 0.0], [1, -0.0]]]),
    ("struct of dicts", StructType("S", (("m", optional(MapType(DATE))),)), [None, [None], [{}], [{"a": 3}]]),
]

TABLES: dict[str, Table] = {
    "ints": Table(
        {"x": (optional(INT), INTS), "y": (optional(INT), INTS)},
        [*binaries(ARITHMETIC), *binaries(ORDERINGS), Power(operand=X, exponent=Y)],
    ),
    "int": Table(
        {"x": (optional(INT), INTS)},
        [
            *numbers(EXACT),
            *(FromEpoch(operand=X, unit=u) for u in (TimeUnit.SECOND, TimeUnit.MILLISECOND, TimeUnit.MICROSECOND)),
        ],
    ),
    "strict ints": Table({"x": (INT, INTS[1:]), "y": (INT, INTS[1:])}, binaries(ARITHMETIC)),
    "floats": Table(
        {"x": (optional(FLOAT), FLOATS + MORE_FLOATS), "y": (optional(FLOAT), FLOATS + MORE_FLOATS)},
        [*binaries(ARITHMETIC), *binaries(ORDERINGS)],
    ),
    "float": Table({"x": (optional(FLOAT), FLOATS + MORE_FLOATS)}, numbers(EXACT)),
    "NaN": Table(
        {"x": (FLOAT, [1.0, 0.0, -0.0, INF]), "y": (FLOAT, [0.0, -0.0, INF])},
        OF_NAN,
    ),
    "mixed": Table(
        {"x": (optional(INT), INTS), "y": (optional(FLOAT), FLOATS)},
        [*binaries(ARITHMETIC), *binaries(ORDERINGS), FillNull(operand=X, fill=Y)],
    ),
    "bools": Table(
        {"x": (optional(BOOL), [None, True, False]), "y": (optional(BOOL), [None, True, False])},
        [
            *binaries([BinaryOp.AND, BinaryOp.OR, *EQUALITIES]),
            Unary(op=UnaryOp.NOT, operand=X),
            Binary(op=BinaryOp.AND, left=NULL, right=X),
        ],
    ),
    "texts": Table(
        {"x": (optional(STRING), TEXTS), "y": (optional(STRING), TEXTS)},
        [*binaries(ORDERINGS), *(StringCall(function=f, operand=X, args=(Y,)) for f in SEARCHES)],
    ),
    "text": Table(
        {"x": (optional(STRING), TEXTS)},
        [
            *(StringCall(function=f, operand=X) for f in TO_TEXT),
            *(Split(operand=X, separator=s) for s in ("", ",", "a", "aa", ".", "\\E", "ß", ",,", "$1")),
        ],
    ),
    "instants": Table(
        {"x": (optional(DATETIME), INSTANTS), "y": (optional(DATETIME), INSTANTS)},
        [*binaries(ORDERINGS), *(Since(operand=X, start=Y, unit=unit) for unit in FIXED_UNITS)],
    ),
    "instant": Table(
        {"x": (optional(DATETIME), INSTANTS)},
        [
            *(DatePart(operand=X, part=part, timezone=zone) for part in TimeUnit for zone in ZONES),
            *(SinceEpoch(operand=X, unit=unit) for unit in FIXED_UNITS),
            *(Strftime(operand=X, format=text, timezone=zone) for text in DATE_FORMATS for zone in ZONES[:2]),
            *(Strftime(operand=X, format="%F %T%.f %z", timezone=zone) for zone in ZONES[2:5]),
            Strftime(operand=X, format="%Z"),
            Strftime(operand=X, format="%Z", timezone="Asia/Kathmandu"),
            DatetimeLiteral(year=2024, month=2, day=29, hour=1, microsecond=7, timezone="Europe/Paris"),
        ],
    ),
    "ends of time": Table(
        {
            "x": (
                DATETIME,
                [-62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000],
            )
        },
        [Strftime(operand=X, format="%F %T", timezone=zone) for zone in ("UTC", "Etc/GMT+5", "Etc/GMT-5")],
    ),
    "dates": Table(
        {"x": (optional(DATE), [None, 0, -1, 19_000, 2_932_896]), "y": (optional(DATE), [None, 0, 5])},
        binaries(ORDERINGS),
    ),
    "float lists": Table(
        {"x": (optional(ListType(optional(FLOAT))), FLOAT_LISTS)},
        [
            *lists(NUMERIC_LIST),
            *(ListAt(operand=X, index=lit(i, INT)) for i in (0, 1, -1, -2, 5, 2**63 - 1, -(2**63), 2**32)),
            ListContains(operand=X, item=lit(0.0, FLOAT)),
            ListContains(operand=X, item=lit(2, INT)),
            ListContains(operand=X, item=NULL),
            ListMap(operand=X, variable="e", body=Binary(op=BinaryOp.DIV, left=E, right=E)),
            ListFilter(
                operand=X,
                variable="e",
                predicate=FillNull(operand=Binary(op=BinaryOp.GT, left=E, right=lit(0.0, FLOAT)), fill=TRUE),
            ),
        ],
    ),
    "strict float lists": Table(
        {"x": (ListType(FLOAT), [v for v in FLOAT_LISTS if v is not None and None not in v])}, lists(NUMERIC_LIST)
    ),
    "int lists": Table(
        {"x": (optional(ListType(optional(INT))), INT_LISTS), "y": (optional(INT), [None, 0, 1, 2, -1])},
        [
            *lists(NUMERIC_LIST),
            ListAt(operand=X, index=Y),
            ListContains(operand=X, item=Y),
            ListMap(operand=X, variable="e", body=Binary(op=BinaryOp.ADD, left=E, right=Y)),
            ListMap(operand=X, variable="e", body=Y),
            ListFilter(
                operand=X,
                variable="e",
                predicate=FillNull(operand=Binary(op=BinaryOp.EQ, left=E, right=Y), fill=FALSE),
            ),
            ListFilter(operand=X, variable="y", predicate=IsNull(operand=Var(name="y"))),
            # The body of this one is evaluated in Python.
            ListMap(
                operand=X,
                variable="e",
                body=ParseJson(operand=NumberCall(function=NumberFunction.TO_STRING, operand=E), dtype=INT),
            ),
        ],
    ),
    "bool lists": Table(
        {
            "x": (
                optional(ListType(optional(BOOL))),
                [None, [], [True], [False], [None], [True, None], [False, None], [True, False]],
            )
        },
        [*lists([*COMMON_LIST, ListFunction.ALL, ListFunction.ANY]), ListContains(operand=X, item=TRUE)],
    ),
    "embeddings": Table(
        {"x": (optional(EmbeddingType(2)), [None, [1.0, -0.0], [INF, 0.5]])},
        [
            *lists(NUMERIC_LIST),
            ListAt(operand=X, index=lit(-1, INT)),
            ListMap(operand=X, variable="e", body=Unary(op=UnaryOp.NEGATE, operand=E)),
        ],
    ),
    "counts": Table(
        {"x": (optional(INT), [None, 5]), "y": (INT, [0, 1, 3, -1])},
        [
            Repeat(value=X, by=Y),
            Zip(dtype=PAIR, fields=(("b", Repeat(value=X, by=lit(2, INT))), ("a", Repeat(value=Y, by=lit(1, INT))))),
        ],
    ),
    "zips": Table(
        {"x": (ListType(INT), [[], [1], [1, 2, 3]]), "y": (ListType(optional(FLOAT)), [[], [0.5, None], [None]])},
        [
            Zip(dtype=PAIR, fields=(("a", X), ("b", Y))),
            Zip(dtype=PAIR, fields=(("b", Y), ("a", X))),
            Zip(dtype=WIDE, fields=(("a", X), ("b", X))),
        ],
    ),
    "dicts": Table(
        {"x": (optional(MapType(optional(INT))), MAPS), "y": (optional(STRING), [None, "a", "b", "", "zz"])},
        [
            DictGet(operand=X, key=Y),
            DictGet(operand=X, key=Y, default=lit(9, INT)),
            DictGet(operand=X, key=Y, default=NULL),
            DictGet(operand=X, key=lit("a", STRING)),
            DictLen(operand=X),
            DictContains(operand=X, key=Y),
            DictContains(operand=lit({"a": 1}, MapType(INT)), key=Y),
        ],
    ),
    "structs": Table(
        {"x": (optional(PAIR), PAIRS), "y": (optional(INT), [None, 3])},
        [
            StructGet(operand=X, field="a"),
            StructGet(operand=X, field="b"),
            MakeStruct(dtype=PAIR, fields=(("b", Y), ("a", lit(1, INT)))),
            MakeStruct(
                dtype=StructType("Outer", (("in", optional(WIDE)), ("y", optional(FLOAT)))),
                fields=(("y", NULL), ("in", X)),
            ),
        ],
    ),
    "documents": Table(
        {
            "x": (
                optional(STRING),
                [
                    None,
                    "",
                    "{",
                    "1",
                    "1.0",
                    "1.5",
                    '"a"',
                    "true",
                    "null",
                    "[1,null]",
                    '{"a": 1.50, "b": [1, {"c": "x"}]}',
                    '{"a":1} x',
                ],
            )
        },
        [
            *(
                ParseJson(operand=X, dtype=dtype)
                for dtype in (INT, FLOAT, BOOL, STRING, optional(INT), ListType(optional(INT)), PAIR)
            ),
            *(
                JsonExtract(operand=X, path=path)
                for path in ("$", "$.a", "$.b[1].c", "$..c", "$.b", "$[0]", "$[?(@.c)]")
            ),
        ],
    ),
    "constants": Table(
        {"x": (optional(INT), [None, 1])},
        [lit(3, FLOAT), lit(INF, FLOAT), lit(-0.0, FLOAT), lit("it's \\", STRING), lit(None, optional(INT))],
    ),
    **{f"any {label}": same(dtype, values) for label, dtype, values in ANY_TYPE},
}


@pytest.mark.parametrize("table", TABLES)
def test_tables(table: str, spark: SparkSession) -> None:
    wrong = differing(TABLES[table], spark)
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)


def test_the_tables_have_all_nodes() -> None:
    nodes = [inner for table in TABLES.values() for node in table.nodes for inner in walk(node)]
    # test_conformance.py has logarithms, test_time_formats.py reads formats; now() has no meaning in a pipeline.
    assert {type(node) for node in nodes} == set(NODE_TYPES) - {Now, Log, Strptime}


def test_now_has_no_meaning_in_a_pipeline() -> None:
    with pytest.raises(DefinitionError, match="pipeline runs before any query"):
        compile_node(Now(), SparkScope(types={}, columns={}))
