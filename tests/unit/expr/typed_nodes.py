"""Random typed expressions: all nodes, over columns of every type (`tests.unit.expr.typed_values`).

`expressions(dtype)` draws expressions whose type is `dtype` or its optional, except for restrictions. Expressions that
must fail (a text that doesn't parse, a negative count) are left out: parsed texts, counts and epochs are drawn from
valid ones. A test of an engine that lacks some nodes or functions names them: `any_expression(without={Zip,
NumberFunction.SIN})`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from caraway.dtypes.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BytesType,
    DataType,
    ListType,
    MapType,
    StructType,
    base_type,
    is_optional,
    optional,
    strip_optional,
)
from caraway.expr.nodes import (
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
from tests.unit.expr.typed_values import (
    BASES,
    LISTED,
    MOMENTS,
    PATHS,
    SCALARS,
    SCHEMA,
    STAMP_FORMAT,
    TYPES,
    columns_of_base,
    json_texts,
    rows,
    values,
)

__all__ = ["BASES", "SCHEMA", "TYPES", "any_expression", "expressions", "rows"]

#: The types to draw from: scalars as often as all the kinds of lists together.
OFTEN = [*TYPES, *list(SCALARS.values()) * 2]
NULL = Literal(value=None, dtype=None)
FIXED_UNITS = [unit for unit in TimeUnit if unit is not TimeUnit.MONTH]
EPOCH_UNITS = [TimeUnit.SECOND, TimeUnit.MILLISECOND, TimeUnit.MICROSECOND]
ZONES = ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kathmandu"]
STEADY_ZONES = ["UTC", "Asia/Tokyo", "Asia/Kathmandu", "Etc/GMT+5"]
OFFSET_FORMAT = "%Y-%m-%dT%H:%M:%S%.f%z"
FORMATS = [OFFSET_FORMAT, "%F %T", "%d.%m.%y %I:%M %p", "%a %e %b %Y, %j", "%s", "%6f %%", "%Z", "%H:%M:%S%.3f"]
EQUALITIES = [BinaryOp.EQ, BinaryOp.NE]
ORDERINGS = [*EQUALITIES, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE]
TO_FLOAT = [
    NumberFunction.SQRT,
    NumberFunction.SIN,
    NumberFunction.COS,
    NumberFunction.TAN,
    NumberFunction.ARCSIN,
    NumberFunction.ARCCOS,
    NumberFunction.ARCTAN,
]

Grow = Callable[[], Node]
T = TypeVar("T")

# A kind of node (or a function) that may be left out, and the function that makes one.
Choice = tuple[object, Grow]


@dataclass(frozen=True)
class Growth:
    """One draw of an expression: `of` draws a type's expression of at most `depth` levels."""

    draw: Any
    depth: int
    without: frozenset[object]
    variable: tuple[str, DataType] | None = None

    def of(self, *dtypes: DataType) -> Node:
        """Draw an expression of one of some types, or of its optional."""
        dtype = self.one(dtypes)
        if self.depth == 0 or self.draw(st.integers(0, 3)) == 0:
            return self.leaf(dtype)
        inner = replace(self, depth=self.depth - 1)
        # Choices for any type are so many that they would crowd out the rest.
        kinds = [*inner.of_any(dtype), *inner.of_kind(dtype) * 2]
        choices = [grow for kind, grow in kinds if kind not in self.without]
        return self.one(choices)() if choices else self.leaf(dtype)

    def solid(self, dtype: DataType) -> Node:
        """Draw an expression that is never null."""
        if self.draw(st.booleans()):
            return self.literal(dtype)
        return FillNull(operand=self.of(dtype), fill=self.literal(dtype))

    def element(self, dtype: DataType) -> Node:
        """Draw an expression of exactly this type, optional or not."""
        if not is_optional(dtype):
            return self.solid(dtype)
        return When(branches=((self.of(BOOL), self.of(strip_optional(dtype))),), otherwise=None)

    def leaf(self, dtype: DataType) -> Node:
        found: list[Grow] = [lambda: self.literal(dtype)]
        found += [lambda name=name: Ref(name=name) for name in columns_of_base(dtype)]  # type: ignore[misc]
        if dtype == DATETIME:
            found.append(Now)
        if self.variable is not None and base_type(self.variable[1]) == dtype:
            found += [lambda name=self.variable[0]: Var(name=name)] * 3  # type: ignore[misc]
        return self.one(found)()

    def literal(self, dtype: DataType) -> Literal:
        return Literal(value=self.draw(values(dtype)), dtype=dtype)

    def one(self, choices: Sequence[T]) -> T:
        found: T = self.draw(st.sampled_from(choices))
        return found

    def known(self, members: Sequence[T]) -> list[T]:
        return [member for member in members if member not in self.without]

    def a_list(self, *elements: DataType) -> Node:
        """Draw a list of one of some types or of their optionals; an embedding is a list of floats."""
        if FLOAT in elements and self.draw(st.integers(0, 5)) == 0:
            return Ref(name=self.one(["e", "oe"]))
        element = self.one(elements)
        return self.of(ListType(self.one([element, optional(element)]) if element in LISTED.values() else element))

    def lambda_(self) -> tuple[Node, str, "Growth", DataType]:
        """Draw a list and the name of its element; return them with a growth for bodies over it and the list's type."""
        listed = self.one([dtype for dtype in TYPES if isinstance(dtype, ListType)])
        name = self.one(["e", "x", "i"])
        return self.of(listed), name, replace(self, variable=(name, listed.of)), listed

    # Choices for all types ------------------------------------------------------------------------------------------

    def of_any(self, dtype: DataType) -> list[Choice]:
        found: list[Choice] = [
            (FillNull, lambda: FillNull(operand=self.of(dtype), fill=self.of(dtype))),
            (When, lambda: self.when(dtype)),
        ]
        if isinstance(dtype, BytesType):
            return found
        found.append((ParseJson, lambda: self.parsed(dtype)))
        if any(base == ListType(dtype) for base in TYPES):
            found.append((ListAt, lambda: ListAt(operand=self.a_list(dtype), index=self.index())))
        for base in TYPES:
            if isinstance(base, MapType) and strip_optional(base.of) == dtype:
                found.append((DictGet, lambda base=base: self.entry(base)))  # type: ignore[misc]
            if isinstance(base, StructType):
                fields = [name for name, field in base.fields if base_type(field) == dtype]
                found += [
                    (StructGet, lambda base=base, name=name: StructGet(operand=self.of(base), field=name))  # type: ignore[misc]
                    for name in fields
                ]
        return found

    def when(self, dtype: DataType) -> Node:
        branches = tuple((self.of(BOOL), self.of(dtype)) for _ in range(self.one([1, 2])))
        otherwise = self.maybe(dtype)
        return When(branches=branches, otherwise=otherwise)

    def parsed(self, dtype: DataType) -> Node:
        first, second = (Literal(value=self.draw(json_texts(dtype)), dtype=STRING) for _ in range(2))
        if self.draw(st.booleans()):
            return ParseJson(operand=first, dtype=dtype)
        otherwise = self.one([None, NULL, second])
        return ParseJson(operand=When(branches=((self.of(BOOL), first),), otherwise=otherwise), dtype=dtype)

    def index(self) -> Node:
        return self.of(INT) if self.draw(st.booleans()) else Literal(value=self.draw(st.integers(-5, 5)), dtype=INT)

    def entry(self, dtype: MapType) -> Node:
        return DictGet(operand=self.of(dtype), key=self.key(), default=self.maybe(strip_optional(dtype.of)))

    def maybe(self, dtype: DataType) -> Node | None:
        return self.one([None, NULL]) if self.draw(st.booleans()) else self.of(dtype)

    def key(self) -> Node:
        return self.of(STRING) if self.draw(st.booleans()) else Literal(value=self.one(["a", "b", ""]), dtype=STRING)

    # Choices for single types ---------------------------------------------------------------------------------------

    def of_kind(self, dtype: DataType) -> list[Choice]:
        match dtype:
            case ListType():
                return self.lists(dtype)
            case StructType(_, fields):
                return [(MakeStruct, lambda: MakeStruct(dtype=dtype, fields=self.fields(fields)))]
            case _:
                return {
                    INT: self.ints,
                    FLOAT: self.floats,
                    BOOL: self.bools,
                    STRING: self.strings,
                    DATETIME: self.instants,
                }.get(dtype, list)()

    def fields(self, fields: Sequence[tuple[str, DataType]]) -> tuple[tuple[str, Node], ...]:
        made = [
            (name, NULL if is_optional(field) and self.draw(st.integers(0, 3)) == 0 else self.field(field))
            for name, field in fields
        ]
        return tuple(self.draw(st.permutations(made)))

    def field(self, dtype: DataType) -> Node:
        if is_optional(dtype):
            return self.of(strip_optional(dtype))
        # A float field may be an int, which is widened.
        return self.solid(INT if dtype == FLOAT and self.draw(st.booleans()) else dtype)

    def numbers(self) -> Node:
        return self.of(INT, FLOAT)

    def binary(self, ops: Sequence[BinaryOp], left: Node, right: Node) -> Node:
        return Binary(op=self.one(ops), left=left, right=right)

    def number(self, functions: Sequence[NumberFunction], operand: Grow) -> list[Choice]:
        known = self.known(functions)
        return [(NumberCall, lambda: NumberCall(function=self.one(known), operand=operand()))] if known else []

    def text(self, functions: Sequence[StringFunction], args: int) -> list[Choice]:
        known = self.known(functions)

        def grow() -> Node:
            operand, *rest = [self.of(STRING) for _ in range(1 + args)]
            return StringCall(function=self.one(known), operand=operand, args=tuple(rest))

        return [(StringCall, grow)] if known else []

    def listed(self, functions: Sequence[ListFunction], *elements: DataType) -> list[Choice]:
        known = self.known(functions)
        return [(ListCall, lambda: ListCall(function=self.one(known), operand=self.a_list(*elements)))] if known else []

    def signed(self, dtype: DataType) -> list[Choice]:
        return [
            (Unary, lambda: Unary(op=UnaryOp.NEGATE, operand=self.of(dtype))),
            *self.number([NumberFunction.ABS], lambda: self.of(dtype)),
            *self.listed([ListFunction.SUM, ListFunction.MIN, ListFunction.MAX], dtype),
        ]

    def ints(self) -> list[Choice]:
        ops = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOOR_DIV, BinaryOp.MOD]
        return [
            *self.signed(INT),
            (Binary, lambda: self.binary(ops, self.of(INT), self.of(INT))),
            (Power, lambda: Power(operand=self.of(INT), exponent=self.count())),
            *self.number([NumberFunction.CEIL, NumberFunction.FLOOR], self.numbers),
            (Round, lambda: Round(operand=self.numbers(), precision=0)),
            *self.text([StringFunction.LEN], 0),
            (
                DatePart,
                lambda: DatePart(operand=self.of(DATETIME), part=self.one(list(TimeUnit)), timezone=self.one(ZONES)),
            ),
            (Since, lambda: Since(operand=self.of(DATETIME), start=self.of(DATETIME), unit=self.one(FIXED_UNITS))),
            (SinceEpoch, lambda: SinceEpoch(operand=self.of(DATETIME), unit=self.one(FIXED_UNITS))),
            *self.listed([ListFunction.LEN], *LISTED.values()),
            (DictLen, lambda: DictLen(operand=self.a_dict())),
        ]

    def floats(self) -> list[Choice]:
        ops, bases = (
            [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOOR_DIV, BinaryOp.MOD],
            [None, 2.0, 10.0, 0.5],
        )
        return [
            *self.signed(FLOAT),
            (Binary, lambda: self.binary(ops, self.of(FLOAT), self.numbers())),
            (Binary, lambda: self.binary(ops, self.numbers(), self.of(FLOAT))),
            (Binary, lambda: self.binary([BinaryOp.DIV], self.numbers(), self.numbers())),
            (Power, lambda: Power(operand=self.of(FLOAT), exponent=self.numbers())),
            (Power, lambda: Power(operand=self.numbers(), exponent=self.of(FLOAT))),
            (Log, lambda: Log(operand=self.numbers(), base=self.one(bases))),
            *self.number(TO_FLOAT, self.numbers),
            (Round, lambda: Round(operand=self.numbers(), precision=self.one([1, 2, 3, 4]))),
            *self.listed([ListFunction.MEAN], INT, FLOAT),
        ]

    def bools(self) -> list[Choice]:
        ordered: list[DataType] = [STRING, DATETIME, DATE]
        tests = [NumberFunction.IS_NAN, NumberFunction.IS_INFINITE]
        return [
            (IsNull, lambda: IsNull(operand=self.of(*TYPES))),
            (Unary, lambda: Unary(op=UnaryOp.NOT, operand=self.of(BOOL))),
            (Binary, lambda: self.binary([BinaryOp.AND, BinaryOp.OR], self.of(BOOL), self.of(BOOL))),
            (Binary, lambda: self.binary([BinaryOp.AND, BinaryOp.OR], NULL, self.of(BOOL))),
            (Binary, lambda: self.binary(ORDERINGS, self.numbers(), self.numbers())),
            (Binary, lambda: self.binary(ORDERINGS, NULL, self.numbers())),
            (Binary, lambda: self.both(ORDERINGS, self.one(ordered))),
            (Binary, lambda: self.both(EQUALITIES, self.one(TYPES))),
            *self.number(tests, self.numbers),
            *self.text([StringFunction.CONTAINS, StringFunction.STARTSWITH, StringFunction.ENDSWITH], 1),
            *self.listed([ListFunction.ALL, ListFunction.ANY], BOOL),
            *self.listed([ListFunction.HAS_NULL], *LISTED.values()),
            (ListContains, self.contains),
            (DictContains, lambda: DictContains(operand=self.a_dict(), key=self.key())),
        ]

    def both(self, ops: Sequence[BinaryOp], dtype: DataType) -> Node:
        return self.binary(ops, self.of(dtype), self.of(dtype))

    def contains(self) -> Node:
        element = self.one(list(LISTED.values()))
        item = self.maybe(INT if element == FLOAT and self.draw(st.booleans()) else element)
        return ListContains(operand=self.a_list(element), item=NULL if item is None else item)

    def strings(self) -> list[Choice]:
        json = [Ref(name="json"), Ref(name="ojson")]
        return [
            *self.text([StringFunction.LOWER, StringFunction.UPPER], 0),
            *self.text([StringFunction.CONCAT], 1),
            *self.number([NumberFunction.TO_STRING], self.numbers),
            (
                Strftime,
                lambda: Strftime(operand=self.of(DATETIME), format=self.one(FORMATS), timezone=self.one(ZONES)),
            ),
            (
                JsonExtract,
                lambda: JsonExtract(operand=self.one([*json, *json, self.of(STRING)]), path=self.one(PATHS)),
            ),
        ]

    def instants(self) -> list[Choice]:
        return [
            (FromEpoch, self.from_epoch),
            (Strptime, self.strptime),
            (DatetimeLiteral, self.datetime_literal),
        ]

    def from_epoch(self) -> Node:
        unit = self.one(EPOCH_UNITS)
        if self.draw(st.booleans()):
            return FromEpoch(operand=Ref(name=self.one(["small", "opt_small"])), unit=unit)
        return FromEpoch(operand=SinceEpoch(operand=self.of(DATETIME), unit=unit), unit=unit)

    def strptime(self) -> Node:
        if self.draw(st.booleans()) or Strftime in self.without:
            return Strptime(operand=Ref(name="stamp"), format=STAMP_FORMAT, timezone=self.one(STEADY_ZONES))
        # The offset has whole minutes: in 1900 clocks went by their longitude, which %z cuts.
        written = Strftime(operand=self.of(DATETIME), format=OFFSET_FORMAT, timezone="Etc/GMT+5")
        return Strptime(operand=written, format=OFFSET_FORMAT, timezone=self.one(ZONES))

    def datetime_literal(self) -> Node:
        t = self.draw(MOMENTS)
        return DatetimeLiteral(
            year=t.year,
            month=t.month,
            day=t.day,
            hour=t.hour,
            minute=t.minute,
            second=t.second,
            microsecond=t.microsecond,
            timezone=self.one(STEADY_ZONES),
        )

    def lists(self, dtype: ListType) -> list[Choice]:
        found: list[Choice] = [
            (Repeat, lambda: self.repeated(dtype.of)),
            (ListMap, lambda: self.mapped(dtype.of)),
            (ListFilter, lambda: self.filtered(dtype)),
        ]
        if self.variable is not None:
            # A lambda has no other lambda in its body.
            found = found[:1]
        if dtype == ListType(STRING):
            separators = ["", ",", "a", "aB"]
            found.append((Split, lambda: Split(operand=self.of(STRING), separator=self.one(separators))))
        if isinstance(dtype.of, StructType):
            struct = dtype.of
            found.append((Zip, lambda: Zip(dtype=struct, fields=self.zipped(struct))))
        return found

    def mapped(self, element: DataType) -> Node:
        operand, name, body, _ = self.lambda_()
        return _small(ListMap(operand=operand, variable=name, body=body.element(element)))

    def repeated(self, element: DataType) -> Node:
        return _small(Repeat(value=self.element(element), by=self.count()))

    def filtered(self, dtype: ListType) -> Node:
        name = self.one(["e", "x", "i"])
        body = replace(self, variable=(name, dtype.of))
        return ListFilter(operand=self.of(dtype), variable=name, predicate=body.solid(BOOL))

    def zipped(self, struct: StructType) -> tuple[tuple[str, Node], ...]:
        fields = [
            (name, self.repeated(field))
            if ListType(field) not in TYPES or self.draw(st.booleans())
            else (name, self.solid(ListType(field)))
            for name, field in struct.fields
        ]
        return tuple(self.draw(st.permutations(fields)))

    def a_dict(self) -> Node:
        return self.of(*[dtype for dtype in TYPES if isinstance(dtype, MapType)])

    def count(self) -> Node:
        """Draw an int from 0 to 5 that is never null."""
        if self.draw(st.booleans()):
            return Ref(name="grade")
        return Literal(value=self.draw(st.integers(0, 5)), dtype=INT)


def _small(node: Node) -> Node:
    """Leave out a node in which several repeats have counts that aren't constants: inference refuses it."""
    counts = [found.by for found in walk(node) if isinstance(found, Repeat)]
    assume(len(counts) < 2 or all(isinstance(count, Literal) for count in counts))
    return node


def expressions(dtype: DataType, depth: int = 3, without: Collection[object] = frozenset()) -> st.SearchStrategy[Node]:
    """Draw expressions of type `dtype` or its optional, at most so deep (some functions add a level of their own).

    Args:
        dtype: One of `TYPES`.
        depth: Levels of the tree.
        without: Classes of nodes and functions (members of `NumberFunction` and so on) to leave out.
    """
    return st.composite(lambda draw: Growth(draw=draw, depth=depth, without=frozenset(without)).of(dtype))()


def any_expression(depth: int = 3, without: Collection[object] = frozenset()) -> st.SearchStrategy[Node]:
    """Draw expressions of any type."""
    return st.composite(lambda draw: Growth(draw=draw, depth=depth, without=frozenset(without)).of(*OFTEN))()
