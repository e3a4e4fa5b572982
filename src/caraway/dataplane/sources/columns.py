"""The columns that a table must have for its source."""

from collections.abc import Callable, Collection

from caraway.compute.rows.records import demanded_columns
from caraway.dataplane.sources.reader import SourceContext
from caraway.dtypes.types import is_optional
from caraway.errors import UnavailableError

# The most columns that an error lists.
SHOWN_COLUMNS = 40


def needed_columns(
    context: SourceContext,
    find: Callable[[str], str | None],
    where: str,
    *,
    shown: str,
    must_stay: Callable[[str], bool] = lambda _: False,
) -> dict[str, str]:
    """Return the columns that a source needs, each with the name that it has in the table.

    A table may lack the column of an optional field, if nothing else needs it.

    Args:
        context: The source and its dataset.
        find: Returns the name in the table of a column; None if the table doesn't have it.
        where: The table, for people.
        shown: The columns of the table, for people.
        must_stay: Returns whether the column of a field was there before, so that it can't be lacking now.

    Raises:
        UnavailableError: A column is missing.
    """
    optional = {field.name for field in context.dataset.fields if is_optional(field.dtype)}
    names: dict[str, str] = {}
    for name, why in demanded_columns(context.dataset, context.source).items():
        found = find(name)
        if found is not None:
            names[name] = found
        elif name not in optional or why != f"field {name}" or must_stay(name):
            raise UnavailableError(
                f"{where}: there is no column {name}, which {why} needs; columns: {shown}. Add the column, or commit a "
                "higher version of the dataset that doesn't read it"
            )
    return names


def check_columns(context: SourceContext, names: Collection[str], where: str) -> None:
    """Check that a table has all columns that a source needs.

    Args:
        context: The source and its dataset.
        names: The names of the table's columns.
        where: The table, for people.

    Raises:
        UnavailableError: A column is missing.
    """
    shown = ", ".join(sorted(names)[:SHOWN_COLUMNS])
    needed_columns(context, lambda name: name if name in names else None, where, shown=shown)
