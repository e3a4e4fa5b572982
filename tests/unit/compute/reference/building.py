"""Short ways to make datasets, operators and engines for the tests of the in-process engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle

from caraway.compute.reference.engine import LocalEngine
from caraway.dtypes.types import DATETIME, FLOAT, INT, STRING, DataType, optional
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Aggregate, Input, Operator
from caraway.graph.schemas import column_of, datasets_read, output_type, schema_of
from caraway.graph.specs import DatasetSpec, FieldSpec, PipelineSpec
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

S = 1_000_000
FOREVER = ContinuousWindow(length_us=None)

Rows = list[dict[str, Any]]


def dataset(
    name: str,
    columns: Mapping[str, DataType],
    keys: Sequence[str] = (),
    operator: Operator | None = None,
    inputs: Sequence[str] = (),
) -> DatasetSpec:
    """Make a dataset whose time stamp is `t`."""
    pipelines = () if operator is None else (PipelineSpec(name="made", inputs=tuple(inputs), operator=operator),)
    return DatasetSpec(
        name=name,
        version=1,
        history_us=0,
        fields=tuple(
            FieldSpec(name=column, dtype=dtype, key=column in keys, timestamp=column == "t")
            for column, dtype in columns.items()
        ),
        index=None,
        pipelines=pipelines,
    )


EVENTS = dataset("Events", {"k": STRING, "x": INT, "y": optional(FLOAT), "t": DATETIME})
VERSIONS = dataset("Versions", {"k": STRING, "x": INT, "y": optional(FLOAT), "t": DATETIME}, keys=["k"])
SIDES = dataset("Sides", {"j": STRING, "z": INT, "t": DATETIME}, keys=["j"])
SOURCES = (EVENTS, VERSIONS, SIDES)

events, versions, sides = (Input(dataset=spec.name) for spec in SOURCES)


def derived(operator: Operator, name: str = "Out", sources: Iterable[DatasetSpec] = SOURCES) -> DatasetSpec:
    """Make a dataset from the output of an operator."""
    known = {spec.name: spec for spec in sources}
    schema = schema_of(operator, known)
    columns = {**schema.keys, **schema.values, schema.timestamp: DATETIME}
    fields = tuple(
        FieldSpec(name=column, dtype=dtype, key=column in schema.keys, timestamp=column == schema.timestamp)
        for column, dtype in columns.items()
    )
    pipeline = PipelineSpec(name="made", inputs=datasets_read(operator), operator=operator)
    return DatasetSpec(name=name, version=1, history_us=0, fields=fields, index=None, pipelines=(pipeline,))


def engine_of(operator: Operator, sources: Sequence[DatasetSpec] = SOURCES, **rows: Rows) -> LocalEngine:
    """Make an engine whose dataset `Out` is the output of an operator, and log rows to its datasets."""
    engine = LocalEngine([*sources, derived(operator, sources=sources)])
    for name, logged in rows.items():
        engine.append(name, logged)
    return engine


def output(operator: Operator, sources: Sequence[DatasetSpec] = SOURCES, **rows: Rows) -> Rows:
    """Return all rows of an operator's output for some input rows."""
    return engine_of(operator, sources, **rows).rows("Out")


def row(k: str, x: int, t: float, y: float | None = None) -> dict[str, Any]:
    """Make a row of `Events` or `Versions`; `t` is in seconds."""
    return {"k": k, "x": x, "y": y, "t": round(t * S)}


def side(j: str, z: int, t: float) -> dict[str, Any]:
    """Make a row of `Sides`; `t` is in seconds."""
    return {"j": j, "z": z, "t": round(t * S)}


def seconds(rows: Rows, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of rows, and their time in seconds."""
    return [(*(r[name] for name in columns), r["t"] / S) for r in rows]


def value_at(engine: LocalEngine, key: tuple[object, ...], at: float, *columns: str) -> tuple[Any, ...] | None:
    """Look up columns of `Out` at a time in seconds; None if the key isn't found."""
    values, found = engine.lookup("Out", [key], round(at * S), columns)
    return tuple(column[0] for column in values) if found[0] else None


def spec_of(
    function: AggregateFunction,
    of: str | None = None,
    window: ContinuousWindow | HoppingWindow | None = FOREVER,
    into: str = "out",
    source: DatasetSpec = EVENTS,
    **parameters: Any,
) -> AggregateSpec:
    """Make an aggregate, with its result type over a source."""
    parameters = {"default": None, **parameters}
    bare = AggregateSpec(function=function, into=into, of=of, window=window, dtype=INT, **parameters)
    before = schema_of(Input(dataset=source.name), {source.name: source})
    if of is not None:
        column_of(bare, before)
    dtype = output_type(bare, before)
    return AggregateSpec(function=function, into=into, of=of, window=window, dtype=dtype, **parameters)


def aggregate(
    *specs: AggregateSpec,
    of: Operator = events,
    keys: Sequence[str] = ("k",),
    window: HoppingWindow | SessionWindow | None = None,
    **parameters: Any,
) -> Aggregate:
    """Make an aggregation, by default with the key `k`."""
    return Aggregate(of=of, keys=tuple(keys), aggregates=specs, window=window, **parameters)


def last(length: float) -> ContinuousWindow:
    """Make a window of the last so many seconds."""
    return ContinuousWindow(length_us=round(length * S))


def hopping(length: int | None, stride: int, lookback: int = 0) -> HoppingWindow:
    """Make a window of buckets, in seconds."""
    return HoppingWindow(
        length_us=None if length is None else length * S, stride_us=stride * S, lookback_us=lookback * S
    )


def function(python: Callable[..., Any], name: str = "made_by_user") -> PythonFunction:
    """Return a function in the form in which users' functions are shipped."""
    return PythonFunction(name=name, source_code="lambda", pickled=cloudpickle.dumps(python))


def compared(column: str, op: BinaryOp, value: int) -> Node:
    """Make a comparison of an int column with a number."""
    return Binary(op=op, left=Ref(name=column), right=Literal(value=value, dtype=INT))


def plus(column: str, value: int) -> Node:
    """Make the sum of an int column and a number."""
    return Binary(op=BinaryOp.ADD, left=Ref(name=column), right=Literal(value=value, dtype=INT))
