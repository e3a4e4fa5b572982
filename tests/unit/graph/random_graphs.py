"""Random graphs, sound in form but not in meaning, which the wire ignores."""

import re
from typing import Any

from hypothesis import strategies as st

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
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.expectations import Expectation, ExpectationSuite
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignedColumn,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Emit,
    Explode,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    ExpressionExtractor,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    IndexSpec,
    LookupExtractor,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow
from tests.unit.expr.typed_nodes import any_expression
from tests.unit.graph.random_sources import sink_specs, source_specs

names = st.text(min_size=1, max_size=5)
columns = st.lists(names, max_size=3).map(tuple)
micros = st.integers(-(2**63), 2**63 - 1)
expressions = any_expression(depth=2)
patterns = names.map(re.escape) | st.sampled_from(["[a-z]+", r"\d{2,5}", r"(?i)\pL*|é?$", ""])

SIMPLE: list[DataType] = [INT, FLOAT, BOOL, STRING, BYTES, DATETIME, DATE]

constants: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | micros | st.floats(allow_nan=False) | names | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)

dtypes: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(SIMPLE)
    | st.builds(DecimalType, st.integers(1, 28))
    | st.builds(EmbeddingType, st.integers(1, 9))
    | st.builds(BetweenType, st.just(INT), st.integers(-5, 0), st.integers(1, 5), st.booleans(), st.booleans())
    | st.builds(BetweenType, st.just(FLOAT), st.just(-0.5), st.just(1e300), st.booleans(), st.booleans())
    | st.builds(OneOfType, st.just(STRING), st.lists(names, min_size=1, max_size=2).map(tuple))
    | st.builds(RegexType, patterns),
    lambda inner: (
        st.builds(ListType, inner)
        | st.builds(MapType, inner)
        | inner.map(optional)
        | st.builds(StructType, names, st.lists(st.tuples(names, inner), max_size=2).map(tuple))
    ),
    max_leaves=4,
)

metadata = st.builds(
    Metadata, owner=names, description=names, tags=columns, deprecated=st.booleans(), deleted=st.booleans()
)

functions = st.builds(PythonFunction, name=names, source_code=names, pickled=st.binary(max_size=3), includes=columns)
continuous = st.builds(ContinuousWindow, length_us=st.none() | micros)
hopping = st.builds(HoppingWindow, length_us=st.none() | micros, stride_us=micros, lookback_us=micros)
sessions = st.builds(SessionWindow, gap_us=micros)

aggregates = st.builds(
    AggregateSpec,
    function=st.sampled_from(AggregateFunction),
    into=names,
    of=st.none() | names,
    window=st.none() | continuous | hopping,
    default=st.none() | micros | st.floats(allow_nan=False),
    dtype=dtypes,
    unique=st.booleans(),
    approx=st.booleans(),
    dropnull=st.booleans(),
    dedup=st.booleans(),
    limit=st.none() | st.integers(0, 2**31),
    p=st.none() | st.floats(0, 1),
    half_life_us=st.none() | micros,
)


def _steps(of: st.SearchStrategy[Operator]) -> dict[type, st.SearchStrategy[Operator]]:
    """Return a strategy for every operator, with `of` as its input."""
    assigned = st.builds(AssignedColumn, name=names, dtype=dtypes, expr=expressions)
    schema = st.none() | st.lists(st.tuples(names, dtypes), max_size=2).map(tuple)
    return {
        Input: st.builds(Input, dataset=names),
        Filter: st.builds(Filter, of=of, predicate=expressions),
        FilterFunction: st.builds(FilterFunction, of=of, function=functions),
        Assign: st.builds(Assign, of=of, columns=st.lists(assigned, max_size=2).map(tuple)),
        AssignFunction: st.builds(AssignFunction, of=of, column=names, dtype=dtypes, function=functions),
        Transform: st.builds(Transform, of=of, function=functions, columns=schema),
        Select: st.builds(Select, of=of, columns=columns),
        Drop: st.builds(Drop, of=of, columns=columns),
        Rename: st.builds(Rename, of=of, pairs=st.lists(st.tuples(names, names), max_size=2).map(tuple)),
        DropNull: st.builds(DropNull, of=of, columns=columns),
        Explode: st.builds(Explode, of=of, columns=columns),
        Union: st.builds(Union, left=of, right=of),
        Dedup: st.builds(Dedup, of=of, by=columns, window=st.none() | hopping | sessions),
        Join: st.builds(
            Join,
            left=of,
            right=names,
            how=st.sampled_from(JoinKind),
            left_on=columns,
            right_on=columns,
            within_low_us=st.none() | micros,
            within_high_us=micros,
            fields=columns,
        ),
        First: st.builds(First, of=of, keys=columns),
        Latest: st.builds(Latest, of=of, keys=columns),
        Aggregate: st.builds(
            Aggregate,
            of=of,
            keys=columns,
            aggregates=st.lists(aggregates, max_size=2).map(tuple),
            window=st.none() | hopping | sessions,
            along=st.none() | names,
            emit=st.sampled_from(Emit),
        ),
        Changelog: st.builds(Changelog, of=of, column=names, marks_inserts=st.booleans()),
    }


inputs: st.SearchStrategy[Operator] = st.builds(Input, dataset=names)
# A strategy for each operator: a test that walks them has drawn all of them.
OPERATORS = _steps(inputs)
operators: st.SearchStrategy[Operator] = st.recursive(inputs, lambda of: st.one_of(*_steps(of).values()), max_leaves=3)
suites = st.builds(
    ExpectationSuite,
    name=names,
    version=micros,
    expectations=st.lists(st.builds(Expectation, name=names, arguments=names), max_size=2).map(tuple),
)

datasets = st.builds(
    DatasetSpec,
    name=names,
    version=micros,
    history_us=micros,
    fields=st.lists(
        st.builds(
            FieldSpec,
            name=names,
            dtype=dtypes,
            key=st.booleans(),
            timestamp=st.booleans(),
            erase_key=st.booleans(),
            metadata=metadata,
        ),
        max_size=3,
    ).map(tuple),
    index=st.none() | st.builds(IndexSpec, online=st.booleans(), offline=st.booleans()),
    sources=st.lists(source_specs(dtypes, constants, expressions), max_size=2).map(tuple),
    sinks=st.lists(sink_specs, max_size=2).map(tuple),
    pipelines=st.lists(
        st.builds(
            PipelineSpec,
            name=names,
            inputs=columns,
            operator=operators,
            env=columns,
            source_code=names,
            metadata=metadata,
        ),
        max_size=2,
    ).map(tuple),
    expectations=st.none() | suites,
    metadata=metadata,
)

extractors = (
    st.builds(
        LookupExtractor,
        name=names,
        dataset=names,
        field=names,
        inputs=columns,
        output=names,
        default=constants,
        element_wise=st.booleans(),
        version=micros,
        env=columns,
        metadata=metadata,
    )
    | st.builds(
        AliasExtractor,
        name=names,
        input=names,
        output=names,
        default=constants,
        version=micros,
        env=columns,
        metadata=metadata,
    )
    | st.builds(
        ExpressionExtractor,
        name=names,
        expr=expressions,
        inputs=columns,
        output=names,
        version=micros,
        env=columns,
        metadata=metadata,
    )
    | st.builds(
        PythonExtractor,
        name=names,
        inputs=columns,
        outputs=columns,
        datasets=columns,
        version=micros,
        source_code=names,
        pickled=st.binary(max_size=5),
        env=columns,
        metadata=metadata,
    )
)

featuresets = st.builds(
    FeaturesetSpec,
    name=names,
    features=st.lists(st.builds(FeatureSpec, name=names, dtype=dtypes, metadata=metadata), max_size=3).map(tuple),
    extractors=st.lists(extractors, max_size=3).map(tuple),
    metadata=metadata,
)

graphs = st.builds(
    Graph,
    datasets=st.lists(datasets, max_size=2).map(tuple),
    featuresets=st.lists(featuresets, max_size=2).map(tuple),
)
