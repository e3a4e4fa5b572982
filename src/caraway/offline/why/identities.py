"""The source records from which a dataset's records were made, told by their identities (docs/inside/records.md).

A record that a job writes has the identity of the record that it was computed from. Some operators put bytes in front
of it or behind it, which are taken off here from the last operator back to the input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from caraway.dataplane.topics.identity import ID_BYTES
from caraway.graph import operators as ops
from caraway.graph.schemas import schema_of
from caraway.graph.specs import DatasetSpec

# The numbers of bytes that operators add to an identity. A changelog, and a version on the left side of a join of
# tables, put a byte for the kind of change and the version's time (8 bytes) in front of it. An explode puts the number
# of the element behind it.
_FLAG_AND_TIME, _ELEMENT = 9, 4
_BEGIN = b"\x01"


@dataclass(frozen=True, slots=True)
class Root:
    """The place of a source record.

    Attributes:
        dataset: The dataset on whose topic it is.
        partition: The partition.
        offset: The offset of its message.
        number: Its number in the message.
        path: The datasets whose pipelines are on its way, the last one first.
    """

    dataset: str
    partition: int
    offset: int
    number: int
    path: tuple[str, ...]


def root_of(dataset: str, identity: bytes, datasets: Mapping[str, DatasetSpec]) -> Root | str:
    """Return the source record of a record with an identity, or why it can't be told.

    Args:
        dataset: The dataset in whose index the record is.
        identity: Its identity.
        datasets: All datasets.
    """
    spec = datasets[dataset]
    if not spec.pipelines:
        return _at(dataset, identity, ())
    operator = spec.pipelines[0].operator
    if isinstance(operator, ops.Aggregate):
        if schema_of(operator.of, datasets).keys:
            identity = identity[:-1]
        operator = operator.of
    return _before(operator, identity, datasets, (dataset,))


def _before(
    operator: ops.Operator, identity: bytes, datasets: Mapping[str, DatasetSpec], path: tuple[str, ...]
) -> Root | str:
    if isinstance(operator, ops.RowByRow):
        return _before(operator.of, identity, datasets, path)
    match operator:
        case ops.Input(dataset=name):
            spec = datasets[name]
            if not spec.pipelines:
                return _at(name, identity, path)
            inner = spec.pipelines[0].operator
            if isinstance(inner, ops.Aggregate):
                return f"it was made from a row of the aggregation {name}"
            return _before(inner, identity, datasets, (*path, name))
        case ops.Union():
            side = operator.right if identity[:1] == _BEGIN else operator.left
            return _before(side, identity[1:], datasets, path)
        case ops.Explode():
            return _before(operator.of, identity[:-_ELEMENT], datasets, path)
        case ops.Changelog():
            return _before(operator.of, identity[_FLAG_AND_TIME:], datasets, path)
        case ops.Join():
            if not schema_of(operator.left, datasets).keys:
                return _before(operator.left, identity, datasets, path)
            if identity[:1] != _BEGIN:
                return f"it begins with a version of {operator.right}, the right side of a join of tables"
            return _before(operator.left, identity[_FLAG_AND_TIME:], datasets, path)
        case ops.Aggregate():
            return "it was made from a row of an aggregation"
        case ops.Latest():
            return _before(operator.of, identity, datasets, path)


def _at(dataset: str, identity: bytes, path: tuple[str, ...]) -> Root | str:
    if len(identity) != ID_BYTES:
        return f"the identity of the record doesn't tell its place on the topic of {dataset}"
    offset, number, partition = (
        int.from_bytes(identity[:8]),
        int.from_bytes(identity[8:10]),
        int.from_bytes(identity[10:12]),
    )
    return Root(dataset, partition, offset, number, path)
