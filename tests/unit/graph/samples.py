"""A value of every class of a graph, with all of its fields set: made from the annotations, the same in each run."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from caraway.dtypes.types import STRING, DataType
from caraway.expr.nodes import NODE_TYPES, IsNull, Node, ParseJson, Ref
from caraway.graph.connectors import Connector, S3Connector, TableConnector
from caraway.graph.drift import Drift
from caraway.graph.operators import OPERATOR_TYPES, Drop, Input, Operator
from caraway.graph.pb.caraway.v1.connectors_pb2 import Source
from caraway.graph.pb.caraway.v1.expressions_pb2 import Expr
from caraway.graph.pb.caraway.v1.graph_pb2 import Extractor as ExtractorMessage
from caraway.graph.pb.caraway.v1.graph_pb2 import Graph as GraphMessage
from caraway.graph.pb.caraway.v1.operators_pb2 import OperatorTree
from caraway.graph.sources import Cdc, Computed, Constant, SourceSpec
from caraway.graph.sources import Ref as PayloadRef
from caraway.graph.specs import Extractor, FeaturesetSpec, FeatureSpec, Graph, Metadata
from caraway.graph.systems import SYSTEMS, AzureSystem, CSVFormat, RegisteredSystem, System, TableSystem
from caraway.graph.wire import differences

SCALARS: dict[Any, object] = {
    bool: True,
    int: 7,
    float: 0.5,
    str: "text",
    bytes: b"bytes",
    object: [None, True, -3, 1.5, "text", b"bytes", {"key": []}],
}
# The values that stand for a member of a union that contains itself. Those of trees have two nodes: the position of the
# upper one is 1, while protobuf doesn't send the position 0.
LEAVES = (IsNull(operand=Ref(name="column")), Drop(of=Input(dataset="Dataset"), columns=("column",)), STRING)

# Base classes that stand for all of their subclasses.
BASES: dict[type, tuple[type, ...]] = {
    **differences.BASES,
    System: tuple(SYSTEMS.values()),
    TableSystem: tuple(system for system in SYSTEMS.values() if issubclass(system, TableSystem)),
}

# Fields that came later, and are absent from the samples that were there before: so these show that definitions without
# them have the bytes that they always had. Samples of their own have them.
LATER = {(Metadata, "drift")}

RECURSIVE = {*NODE_TYPES, *OPERATOR_TYPES, *get_args(DataType)}


def members(hint: Any) -> list[Any]:
    """Return the classes of a union without None, or the subclasses of a base class; of another type, itself."""
    found = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [cls for member in found if member is not NoneType for cls in BASES.get(member, (member,))]


def sample(cls: Any) -> Any:
    """Return a value of a class with all of its fields set, but for those of `LATER`."""
    hints = get_type_hints(cls)
    return cls(**{f.name: _value(hints[f.name], f.name) for f in fields(cls) if (cls, f.name) not in LATER})


def _value(hint: Any, name: str) -> Any:
    classes = members(hint)
    first = classes[0]
    for leaf in LEAVES:
        if len(classes) > 1 and type(leaf) in classes:
            return leaf
    if get_origin(first) is tuple:
        items = get_args(first)
        if items[-1] is Ellipsis:
            return (_value(items[0], name),) * 2
        return tuple(_value(item, name) for item in items)
    if is_dataclass(first):
        return sample(first)
    if issubclass(first, Enum):
        return list(first)[-1]
    # A text is the name of its field, but for the kind of a system.
    return {"kind": AzureSystem.kind}.get(name, name) if first is str else SCALARS[first]


def variants(cls: Any) -> Iterator[tuple[str, Any]]:
    """Yield values of a class, after their names: one with all fields set, and one for each other kind of a field."""
    yield cls.__name__, sample(cls)
    for field, hint in get_type_hints(cls).items():
        if NoneType in get_args(hint):
            yield f"{cls.__name__}.{field}.None", replace(sample(cls), **{field: None})
        for member in members(hint)[1:]:
            if member not in RECURSIVE:
                value = replace(sample(cls), **{field: _value(member, field)})
                yield f"{cls.__name__}.{field}.{member.__name__}", value


def samples() -> dict[str, tuple[object, type[Message]]]:
    """Return values of every class, in something that has a message of its own, by the name of the class."""
    found: dict[str, tuple[object, type[Message]]] = {"Graph": (sample(Graph), GraphMessage)}
    feature = FeatureSpec(name="feature", dtype=STRING, metadata=Metadata(drift=sample(Drift)))
    featureset = FeaturesetSpec(name="featureset", features=(feature,), extractors=())
    found["Graph with drift"] = Graph(datasets=(), featuresets=(featureset,)), GraphMessage
    found |= {f"Node {name}": (node, Expr) for cls in members(Node) for name, node in variants(cls)}
    found |= {f"Operator {name}": (tree, OperatorTree) for cls in members(Operator) for name, tree in variants(cls)}
    found |= {f"Extractor {name}": (e, ExtractorMessage) for cls in members(Extractor) for name, e in variants(cls)}
    found |= {
        f"DataType {name}": (ParseJson(operand=Ref(name="x"), dtype=dtype), Expr)
        for cls in members(DataType)
        for name, dtype in variants(cls)
    }
    table = sample(TableConnector)
    source = SourceSpec(connector=table, cdc=Cdc.UPSERT, disorder_us=1)
    for cls in (PayloadRef, Constant, Computed):
        for name, made in variants(cls):
            found[f"Made {name}"] = replace(source, preproc=(("field", made),)), Source
    for cls in members(Connector):
        for name, connector in variants(cls):
            found[f"Connector {name}"] = replace(source, connector=connector), Source
    without_headers = replace(sample(S3Connector), format=CSVFormat())
    found["Connector S3Connector, CSV without headers"] = replace(source, connector=without_headers), Source
    for cls in members(RegisteredSystem | System):
        for name, system in variants(cls):
            found[f"System {name}"] = replace(source, connector=replace(table, system=system)), Source
    return found


def altered(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value with one of its leaves changed, for each leaf, after the names of the fields that lead to it."""
    if isinstance(value, tuple) and value:
        for place, item in enumerate(value):
            for path, other in altered(item):
                yield path, (*value[:place], other, *value[place + 1 :])
        if len(set(map(type, value))) == 1:
            yield "fewer", value[1:]
    elif is_dataclass(value) and fields(value) and not isinstance(value, type):
        for item in fields(value):
            for path, other in altered(getattr(value, item.name)):
                yield f"{item.name}.{path}", replace(value, **{item.name: other})
    elif isinstance(value, Enum):
        yield "", next(other for other in type(value) if other is not value)
    elif isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int | float):
        yield "", value + 1
    elif isinstance(value, str | bytes):
        yield "", type(value)() if len(value) > 1 else value * 2
