"""Random graphs by the annotations of their classes: sound in form but not in meaning, which the wire ignores."""

import re
from dataclasses import fields
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

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
from caraway.expr.nodes import NODE_TYPES
from caraway.graph.operators import OPERATOR_TYPES, Input, Operator
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, Graph, Metadata
from tests.unit.expr.typed_nodes import any_expression
from tests.unit.graph.samples import members

Strategy = st.SearchStrategy[Any]

names = st.text(max_size=6)
micros = st.integers(-(2**63), 2**63 - 1)
expressions = any_expression(depth=2)
patterns = names.map(re.escape) | st.sampled_from(["[a-z]+", r"\d{2,5}", r"(?i)\pL*|é?$", ""])

SIMPLE: list[DataType] = [INT, FLOAT, BOOL, STRING, BYTES, DATETIME, DATE]

constants: Strategy = st.recursive(
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

# The strategies of classes that aren't drawn field by field; a union of data types, nodes or operators is drawn as a
# whole.
DRAWN: dict[Any, Strategy] = {
    bool: st.booleans(),
    int: micros,
    float: st.floats(allow_nan=False),
    str: names,
    bytes: st.binary(max_size=3),
    object: constants,
    **dict.fromkeys(get_args(DataType), dtypes),
    **dict.fromkeys(NODE_TYPES, expressions),
}
WHOLE: Strategy = st.deferred(lambda: operators)


@cache
def any_of(hint: Any, inputs: Strategy = WHOLE) -> Strategy:
    """Return a strategy of values of an annotation; operators in them are drawn from `inputs`."""
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if items[-1] is Ellipsis:
            return st.lists(any_of(items[0], inputs), max_size=2).map(tuple)
        return st.tuples(*(any_of(item, inputs) for item in items))
    if (found := members(hint)) != [hint]:
        alternatives = dict.fromkeys(inputs if cls in OPERATOR_TYPES else any_of(cls, inputs) for cls in found)
        return st.one_of(*alternatives, *([st.none()] if NoneType in get_args(hint) else []))
    if hint in DRAWN:
        return DRAWN[hint]
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint)
    return st.builds(hint, **{item.name: any_of(hints[item.name], inputs) for item in fields(hint)})


operators: st.SearchStrategy[Operator] = st.recursive(
    any_of(Input), lambda of: st.one_of(*(any_of(cls, of) for cls in OPERATOR_TYPES)), max_leaves=3
)

metadata: st.SearchStrategy[Metadata] = any_of(Metadata)
datasets: st.SearchStrategy[DatasetSpec] = any_of(DatasetSpec)
extractors: st.SearchStrategy[Extractor] = any_of(Extractor)
featuresets: st.SearchStrategy[FeaturesetSpec] = any_of(FeaturesetSpec)
graphs: st.SearchStrategy[Graph] = any_of(Graph)
