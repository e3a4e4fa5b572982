"""Alias steps, which add a column under another name."""

from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.model import AliasStep
from caraway.dtypes.types import is_optional, type_name
from caraway.dtypes.values import cast
from caraway.errors import InvalidInputError


def compile_alias(step: AliasStep) -> Run:
    """Return the function that adds the column of an alias step to a batch."""
    source, name, default = step.input, step.output, step.default
    # An input that isn't in the graph has no known type, and its values are raw JSON, so they are cast to the output's
    # type.
    convert = cast(step.dtype) if step.input_dtype is None else None

    def run(batch: Batch) -> None:
        column = batch.columns[source]
        if default is not None:
            column = [default if value is None else value for value in column]
        if convert is not None:
            try:
                column = [convert(value) for value in column]
            except InvalidInputError as error:
                raise InvalidInputError(f"{source}: {error}") from None
        elif None in column and not is_optional(step.dtype):
            raise InvalidInputError(
                f"{name} is declared {type_name(step.dtype)}, but row {column.index(None)} of {source} is null"
            )
        batch.columns[name] = column
        if default is None and source in batch.returned:
            batch.returned[name] = batch.returned[source].rename(name)

    return run
