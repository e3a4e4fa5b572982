"""The schema of a dataset or of a step, and functions that all rules share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, singledispatch

from caraway.dtypes.types import DATETIME, DataType, type_name
from caraway.errors import DefinitionError, meant
from caraway.graph.operators import Operator
from caraway.graph.specs import DatasetSpec


@dataclass(frozen=True)
class Schema:
    """Columns of a dataset or of an operator's output: keys, values, and the name of the time stamp."""

    keys: Mapping[str, DataType]
    values: Mapping[str, DataType]
    timestamp: str
    #: True after an aggregate whose values depend on the time of the read: one that has ExpDecaySum, or continuous
    #: windows without emit="final". Such values are computed by each read, so no operator can follow the aggregate in a
    #: pipeline.
    terminal: bool = field(default=False, compare=False)

    @cached_property
    def columns(self) -> dict[str, DataType]:
        """All columns: keys, values, time stamp."""
        return {**self.keys, **self.values, self.timestamp: DATETIME}


def schema_of_dataset(spec: DatasetSpec) -> Schema:
    """Return the schema of a dataset."""
    return Schema(
        keys={f.name: f.dtype for f in spec.fields if f.key},
        values={f.name: f.dtype for f in spec.fields if not f.key and not f.timestamp},
        timestamp=spec.timestamp,
    )


def step_schema(operator: Operator, before: Schema) -> Schema:
    """Compute the schema after an operator with one input, given the schema before it.

    Raises:
        DefinitionError: The operator doesn't fit its input.
        DefinitionTypeError: The same fault, where the specified API raises a TypeError.
    """
    require_not_terminal(before, type(operator).__name__.lower().removesuffix("function"))
    return step_rule(operator, before)


@singledispatch
def step_rule(operator: Operator, before: Schema) -> Schema:
    """Compute the schema after an operator by the rule for its class; see `step_schema`."""
    raise NotImplementedError(f"no schema rule for {type(operator).__name__}")


def require_not_terminal(before: Schema, operator: str) -> None:
    """Refuse to put anything behind an aggregate whose values are computed when they are read.

    Raises `DefinitionError` if the input ends in such an aggregate (`Schema.terminal`).
    """
    if before.terminal:
        raise DefinitionError(
            f"{operator}: nothing can follow an aggregate over continuous windows, whose values come into being when "
            f'they are read; put {operator} before the aggregate, or let that have emit="final"'
        )


def schema_differences(found: Schema, declared: Schema, *, sides: tuple[str, str] = ("output", "dataset")) -> list[str]:
    """Return a line for each difference between two schemas.

    Args:
        found: The schema of the output.
        declared: The schema that the output must have.
        sides: The names of the two schemas in the lines.
    """
    here, there = sides
    problems = []
    if found.timestamp != declared.timestamp:
        problems.append(f"the timestamp is {found.timestamp} in the {here}, {declared.timestamp} in the {there}")
    for part, ours, theirs in (("key", found.keys, declared.keys), ("value", found.values, declared.values)):
        unmatched = [name for name in theirs if name not in ours]
        for name in [*ours, *unmatched]:
            if name not in theirs:
                problems.append(
                    f"{part} {name} ({type_name(ours[name])}) of the {here} is not in the {there}'s {part}s"
                    + meant(name, unmatched)
                )
            elif name not in ours:
                problems.append(
                    f"{part} {name} ({type_name(theirs[name])}) of the {there} is not in the {here}'s {part}s"
                )
            elif ours[name] != theirs[name]:
                problems.append(
                    f"{part} {name} is {type_name(ours[name])} in the {here}, {type_name(theirs[name])} in the {there}"
                )
    return problems


def spell(dtype: DataType | None) -> str:
    """Return the spelling of a type, "null" for None, which stands for the type of a bare null."""
    return "null" if dtype is None else type_name(dtype)


def listed(names: Iterable[str]) -> str:
    """Return names joined for a message."""
    return ", ".join(names) or "none"


def value_columns(schema: Schema) -> str:
    """Return the names of the value columns for a message."""
    return f"value columns: {listed(schema.values)}"


def role_of(name: str, schema: Schema) -> str:
    """Return the role of a column that is no value column."""
    return "the timestamp" if name == schema.timestamp else "a key"


def require_keyless(operator: str, before: Schema, error: type[Exception]) -> None:
    """Raise `error` if the input has keys."""
    if before.keys:
        raise error(
            f"{operator}: the input must be keyless, but has the keys {listed(before.keys)}; changelog(...) makes a "
            "keyless one of it"
        )
