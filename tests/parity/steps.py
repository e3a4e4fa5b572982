"""Random steps of a pipeline: all operators. Steps that don't fit or aren't streamed yet are refused later."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from caraway.dtypes.types import (
    DATETIME,
    INT,
    DataType,
    DecimalType,
    FloatType,
    IntType,
    ListType,
    base_type,
    is_optional,
    optional,
)
from caraway.expr.nodes import FillNull
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Emit,
    Explode,
    Filter,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
    Union,
)
from caraway.graph.schemas import Schema, output_type, schema_of, schema_of_dataset
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.parity.expressions import MADE, expression, literal, predicate
from tests.parity.functions import assign_by_function, filter_by_function, transform_by_function

SECOND = 1_000_000
LENGTHS = [SECOND, 2 * SECOND, 10 * SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND, 400 * 86_400 * SECOND]
STRIDES = [SECOND, 5 * SECOND, 60 * SECOND, 3600 * SECOND]


@dataclass(frozen=True)
class Place:
    """The place where a step is to be added: the steps before it, and the rest of the graph."""

    rng: Random
    operator: Operator
    schema: Schema
    others: Sequence[DatasetSpec]
    accepts: Callable[[Operator], bool]

    def columns(
        self, of: Callable[[DataType], bool] = lambda _: True, *, least: int = 1, most: int = 3
    ) -> tuple[str, ...]:
        """Choose some columns, not the time stamp; ValueError if there are too few."""
        found = [name for name, dtype in {**self.schema.keys, **self.schema.values}.items() if of(dtype)]
        if len(found) < least:
            raise ValueError("too few columns")
        return tuple(self.rng.sample(found, self.rng.randint(least, min(most, len(found)))))

    def then(self, operator: Operator) -> "Place":
        """Return the place behind a step that isn't there yet."""
        schema = schema_of(operator, {spec.name: spec for spec in self.others})
        return replace(self, operator=operator, schema=schema)


Maker = Callable[[Place], Operator]


def make_filter(place: Place) -> Operator:
    return Filter(of=place.operator, predicate=predicate(place.rng, place.schema.columns))


def make_assign(place: Place) -> Operator:
    rng = place.rng
    columns = []
    for number in range(rng.choice([1, 1, 2])):
        dtype = rng.choice(MADE)
        node = expression(rng, place.schema.columns, dtype, depth=3)
        old = [name for name in place.schema.values if rng.random() < 0.2]
        name = rng.choice(old) if old else f"a{rng.randrange(100)}_{number}"
        if rng.random() < 0.5:
            columns.append(AssignedColumn(name=name, dtype=optional(dtype), expr=node))
        else:
            columns.append(
                AssignedColumn(name=name, dtype=dtype, expr=FillNull(operand=node, fill=literal(rng, dtype)))
            )
    return Assign(of=place.operator, columns=tuple({column.name: column for column in columns}.values()))


def make_filter_by_function(place: Place) -> Operator:
    return filter_by_function(place.rng, place.operator, place.schema.columns)


def make_assign_by_function(place: Place) -> Operator:
    return assign_by_function(place.rng, place.operator, place.schema.columns, f"f{place.rng.randrange(100)}")


def make_transform(place: Place) -> Operator:
    return transform_by_function(place.rng, place.operator, place.schema.columns, f"t{place.rng.randrange(100)}")


def make_select(place: Place) -> Operator:
    kept = place.columns(least=2, most=5)
    return Select(of=place.operator, columns=tuple(dict.fromkeys((*place.schema.keys, *kept))))


def make_drop(place: Place) -> Operator:
    return Drop(of=place.operator, columns=(place.rng.choice(list(place.schema.values)),))


def make_rename(place: Place) -> Operator:
    old = place.rng.choice(list(place.schema.columns))
    return Rename(of=place.operator, pairs=((old, f"r{place.rng.randrange(100)}"),))


def make_drop_null(place: Place) -> Operator:
    return DropNull(of=place.operator, columns=place.columns(is_optional, most=2))


def make_explode(place: Place) -> Operator:
    return Explode(of=place.operator, columns=place.columns(lambda dtype: isinstance(dtype, ListType), most=1))


def make_union(place: Place) -> Operator:
    """Put the same rows together twice, or those that pass a filter with all."""
    other = make_filter(place) if place.rng.random() < 0.7 else place.operator
    return Union(left=place.operator, right=other)


def make_dedup(place: Place) -> Operator:
    rng = place.rng
    tumbling = HoppingWindow(length_us=60 * SECOND, stride_us=60 * SECOND)
    window = rng.choice([None, None, tumbling, SessionWindow(gap_us=rng.choice(STRIDES))])
    return Dedup(of=place.operator, by=place.columns(most=2), window=window)


def make_join(place: Place) -> Operator:
    rng = place.rng
    right = rng.choice([spec for spec in place.others if spec.keys])
    schema = schema_of_dataset(right)
    left_on = []
    for dtype in schema.keys.values():
        fitting = [name for name, found in place.schema.columns.items() if found == dtype]
        left_on.append(rng.choice(fitting))
    available = [n for n in (*schema.values, schema.timestamp) if n not in place.schema.columns]
    within = rng.random() < 0.4
    return Join(
        left=place.operator,
        right=right.name,
        how=rng.choice(list(JoinKind)),
        left_on=tuple(left_on),
        right_on=tuple(schema.keys),
        within_low_us=rng.choice([0, 1, *LENGTHS]) if within else None,
        within_high_us=rng.choice([0, 1, *LENGTHS[:4]]) if within and not place.schema.keys else 0,
        fields=tuple(rng.sample(available, rng.randint(1, len(available)))),
    )


def make_join_of_corrected(place: Place) -> Operator:
    """Make a table whose versions may be corrected, and join it with another one."""
    corrected: Operator
    match place.rng.randrange(3):
        case 0:
            corrected = make_first(place)
        case 1:
            corrected = make_latest(replace(place, operator=make_dedup(place)))
        case _:
            # By what a join has brought, too.
            joined = place.then(make_join(place))
            corrected = make_latest(joined)
    return make_join(place.then(corrected))


def make_first(place: Place) -> Operator:
    return First(of=place.operator, keys=place.columns(_is_key, most=2))


def make_latest(place: Place) -> Operator:
    return Latest(of=place.operator, keys=place.columns(_is_key, most=2))


def make_changelog(place: Place) -> Operator:
    return Changelog(of=place.operator, column="change", marks_inserts=place.rng.random() < 0.5)


def make_aggregate(place: Place) -> Operator:
    rng = place.rng
    kind = rng.choice(["continuous"] * 6 + ["hopping", "hopping", "groupby", "groupby"])
    window: HoppingWindow | SessionWindow | None = None
    if kind == "groupby":
        window = _hopping(rng) if rng.random() < 0.5 else SessionWindow(gap_us=rng.choice(STRIDES))
    instants = [name for name, dtype in place.schema.values.items() if dtype == DATETIME]
    whole = Aggregate(
        of=place.operator,
        keys=place.columns(_is_key, most=2),
        aggregates=(),
        window=window,
        along=rng.choice(instants) if instants and rng.random() < 0.15 else None,
        emit=Emit.FINAL if kind != "continuous" and rng.random() < 0.2 else Emit.EAGER,
    )
    wanted = rng.randint(1, 5)
    for number in range(4 * wanted):
        column = _aggregate(place, kind, number)
        # One by one: of several columns at once, one would be refused nearly always.
        if column is not None and place.accepts(replace(whole, aggregates=(column,))):
            whole = replace(whole, aggregates=(*whole.aggregates, column))
        if len(whole.aggregates) == wanted:
            break
    return whole


def _aggregate(place: Place, kind: str, number: int) -> AggregateSpec | None:
    rng = place.rng
    function = rng.choice(list(AggregateFunction))
    counts_rows = function is AggregateFunction.COUNT and rng.random() < 0.6
    of = None if counts_rows else rng.choice([*place.schema.keys, *place.schema.values])
    window: ContinuousWindow | HoppingWindow | None = None
    if kind == "continuous":
        window = ContinuousWindow(length_us=rng.choice([None, None, *LENGTHS]))
    elif kind == "hopping":
        window = _hopping(rng)
    listed = function in {AggregateFunction.LAST_K, AggregateFunction.FIRST_K}
    nullable = of is not None and is_optional(place.schema.columns[of])
    bare = AggregateSpec(
        function=function,
        into=f"v{number}",
        of=of,
        window=window,
        default=_default(place, function, of),
        dtype=INT,
        unique=function is AggregateFunction.COUNT and of is not None and rng.random() < 0.7,
        dropnull=(listed or function is AggregateFunction.DISTINCT) and nullable and rng.random() < 0.5,
        dedup=listed and rng.random() < 0.3,
        limit=rng.choice([1, 2, 5]) if listed else None,
        p=rng.choice([0.0, 0.25, 0.5, 0.99]) if function is AggregateFunction.QUANTILE else None,
        half_life_us=rng.choice(LENGTHS) if function is AggregateFunction.EXP_DECAY_SUM else None,
    )
    try:
        dtype = output_type(bare, place.schema)
    except (ValueError, TypeError):
        return None
    return replace(bare, dtype=dtype)


def _default(place: Place, function: AggregateFunction, of: str | None) -> object:
    """A default in stored form, of the functions that may have one."""
    if of is None or place.rng.random() < 0.4:
        return None
    base = base_type(place.schema.columns[of])
    match function:
        case AggregateFunction.MIN | AggregateFunction.MAX:
            if isinstance(base, (IntType, FloatType)):
                return -7 if isinstance(base, IntType) else -7.5
        case (
            AggregateFunction.AVERAGE
            | AggregateFunction.STDDEV
            | AggregateFunction.VARIANCE
            | AggregateFunction.QUANTILE
        ):
            return -0.25
    return None


def _hopping(rng: Random) -> HoppingWindow:
    stride = rng.choice(STRIDES)
    return HoppingWindow(length_us=rng.choice([1, 1, 2, 3]) * stride, stride_us=stride)


def _is_key(dtype: DataType) -> bool:
    """Return whether a column may group rows; floats and types that contain them are no keys."""
    return not isinstance(base_type(dtype), (FloatType, ListType, DecimalType))


#: Everything, the more frequent the more often it stands here.
KEYLESS: list[Maker] = [
    *[make_filter, make_assign] * 3,
    make_select,
    make_drop,
    make_rename,
    *[make_drop_null, make_union] * 2,
    # Few columns are lists: most attempts find none.
    *[make_explode] * 6,
    *[make_dedup] * 3,
    make_filter_by_function,
    make_assign_by_function,
    make_transform,
    *[make_join] * 9,
]
KEYED: list[Maker] = [
    *[make_filter, make_assign] * 3,
    make_select,
    make_drop,
    make_rename,
    *[make_drop_null] * 2,
    *[make_explode] * 3,
    make_filter_by_function,
    make_assign_by_function,
    make_transform,
    *[make_join] * 6,
]
#: Steps that make a keyed dataset of a keyless one, or the other way round.
TURNS_KEYLESS: list[Maker] = [
    *[make_first, make_latest] * 2,
    *[make_join_of_corrected] * 3,
    *[make_aggregate] * 6,
]
TURNS_KEYED: list[Maker] = [make_changelog, *[make_aggregate] * 3]


def maker_of(rng: Random, schema: Schema, *, turn: bool) -> Maker:
    """Choose a step; `turn` asks for one that keys rows, or takes their keys away."""
    if turn:
        return rng.choice(TURNS_KEYED if schema.keys else TURNS_KEYLESS)
    return rng.choice(KEYED if schema.keys else KEYLESS)


def start(spec: DatasetSpec) -> Operator:
    return Input(dataset=spec.name)
