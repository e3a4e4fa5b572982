"""Random graphs: sound in form, not in meaning, which the wire doesn't look at."""

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
from caraway.graph.operators import (
    Aggregate,
    AggregateFunction,
    AggregateSpec,
    Assign,
    AssignedColumn,
    Drop,
    Filter,
    Input,
    Join,
    JoinKind,
    Latest,
    Operator,
    Rename,
    Select,
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
from caraway.graph.windows import ContinuousWindow
from tests.unit.expr.typed_nodes import any_expression
from tests.unit.graph.random_sources import sink_specs, source_specs

names = st.text(min_size=1, max_size=5)
columns = st.lists(names, max_size=3).map(tuple)
micros = st.integers(-(2**63), 2**63 - 1)
expressions = any_expression(depth=2)

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
    | st.builds(RegexType, names),
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

aggregates = st.builds(
    AggregateSpec,
    function=st.sampled_from(AggregateFunction),
    into=names,
    of=st.none() | names,
    window=st.builds(ContinuousWindow, length_us=st.none() | micros),
    default=st.none() | micros | st.floats(allow_nan=False),
    dtype=dtypes,
)


def _after(of: st.SearchStrategy[Operator]) -> st.SearchStrategy[Operator]:
    assigned = st.builds(AssignedColumn, name=names, dtype=dtypes, expr=expressions)
    return (
        st.builds(Filter, of=of, predicate=expressions)
        | st.builds(Assign, of=of, columns=st.lists(assigned, max_size=2).map(tuple))
        | st.builds(Select, of=of, columns=columns)
        | st.builds(Drop, of=of, columns=columns)
        | st.builds(Rename, of=of, pairs=st.lists(st.tuples(names, names), max_size=2).map(tuple))
        | st.builds(Latest, of=of, keys=columns)
        | st.builds(Aggregate, of=of, keys=columns, aggregates=st.lists(aggregates, max_size=2).map(tuple))
        | st.builds(
            Join,
            left=of,
            right=names,
            how=st.sampled_from(JoinKind),
            left_on=columns,
            right_on=columns,
            within_low_us=st.none() | micros,
            within_high_us=micros,
            fields=columns,
        )
    )


operators: st.SearchStrategy[Operator] = st.recursive(st.builds(Input, dataset=names), _after, max_leaves=4)

datasets = st.builds(
    DatasetSpec,
    name=names,
    version=micros,
    history_us=micros,
    fields=st.lists(
        st.builds(FieldSpec, name=names, dtype=dtypes, key=st.booleans(), timestamp=st.booleans(), metadata=metadata),
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
        env=columns,
    )
    | st.builds(AliasExtractor, name=names, input=names, output=names, default=constants, env=columns)
    | st.builds(ExpressionExtractor, name=names, expr=expressions, inputs=columns, output=names, env=columns)
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
