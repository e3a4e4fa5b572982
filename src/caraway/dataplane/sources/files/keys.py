"""The columns by which the changes of a table are told apart, for the readers of table formats."""

from collections.abc import Sequence

from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.sources import Constant, Ref


def key_columns(context: SourceContext, kind: str) -> Sequence[str]:
    """Return the columns of a table that make the key of its dataset.

    Args:
        context: The source.
        kind: The kind of the table with its article, such as "a Delta table", for the error.

    Raises:
        UnavailableError: A key is computed, so rows can't be compared.
    """
    made = dict(context.source.preproc)
    columns: list[str] = []
    for name in context.dataset.keys:
        match made.get(name):
            case None:
                columns.append(name)
            case Ref(path=(column, *_)):
                columns.append(column)
            case Constant():
                continue
            case _:
                raise UnavailableError(
                    f"dataset {context.dataset.name}: eval makes the key {name}, by which the changes of {kind} can't "
                    "be told apart; take it from a column"
                )
    return columns
