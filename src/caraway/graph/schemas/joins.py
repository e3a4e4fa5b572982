"""Rules of joins."""

from caraway.dtypes.types import DATETIME, DataType, base_type, is_optional, optional, type_name
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.graph.operators import Join, JoinKind
from caraway.graph.schemas.model import Schema, listed, require_not_terminal, schema_of_dataset
from caraway.graph.specs import DatasetSpec


def join_schema(operator: Join, left: Schema, right: DatasetSpec) -> Schema:
    """Compute the schema after a join and check it.

    Raises:
        DefinitionError: The sides don't fit together.
        DefinitionTypeError: The types of paired columns don't fit together.
    """
    require_not_terminal(left, "join")
    where = f"join with {right.name}"
    other = schema_of_dataset(right)
    if not other.keys:
        raise DefinitionError(f"{where}: {right.name} has no keys; the right side of a join is a keyed dataset")
    if set(operator.right_on) != set(other.keys) or len(operator.right_on) != len(other.keys):
        raise DefinitionError(
            f"{where}: joined on {listed(operator.right_on)}, but the keys of {right.name} are {listed(other.keys)}; "
            "all of them, and nothing else, must be given"
        )
    if len(operator.left_on) != len(operator.right_on):
        raise DefinitionError(
            f"{where}: {len(operator.left_on)} left columns for {len(operator.right_on)} right ones: "
            f"{listed(operator.left_on)} and {listed(operator.right_on)}"
        )
    for name, key in zip(operator.left_on, operator.right_on, strict=True):
        _require_pair(where, name, key, left, other)
    return Schema(
        keys=left.keys,
        values={**left.values, **_joined_columns(operator, where, left, other)},
        timestamp=left.timestamp,
    )


def _require_pair(where: str, name: str, key: str, left: Schema, other: Schema) -> None:
    if name not in left.columns:
        raise DefinitionError(
            f"{where}: unknown left column {name}{meant(name, left.columns)}; columns: {listed(left.columns)}"
        )
    found, wanted = left.columns[name], other.keys[key]
    if is_optional(found):
        raise DefinitionTypeError(
            f"{where}: left column {name} is {type_name(found)}; a join column can't be optional, fill its nulls first"
        )
    if found != wanted:
        raise DefinitionTypeError(
            f"{where}: left column {name} is {type_name(found)}, but key {key} is {type_name(wanted)}; they must be "
            "equal"
        )


def _joined_columns(operator: Join, where: str, left: Schema, other: Schema) -> dict[str, DataType]:
    available = {**other.values, other.timestamp: DATETIME}
    names = operator.fields
    for name in names:
        if name not in available:
            raise DefinitionError(
                f"{where}: fields names {name}{meant(name, available)}; possible: {listed(available)}"
            )
        if name in left.columns:
            raise DefinitionError(
                f"{where}: column {name} is on both sides: {type_name(left.columns[name])} on the left, "
                f"{type_name(available[name])} on the right; rename it on the left, or choose fields= without it"
            )
    if operator.how is JoinKind.INNER:
        return {name: available[name] for name in names}
    return {name: optional(base_type(available[name])) for name in names}
