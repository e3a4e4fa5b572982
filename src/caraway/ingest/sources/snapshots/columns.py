"""The columns that a table must have for its source."""

from collections.abc import Collection

from caraway.dtypes.types import is_optional
from caraway.errors import UnavailableError
from caraway.ingest.sources.reader import SourceContext
from caraway.rows.records import demanded_columns

# The most columns that an error lists.
SHOWN_COLUMNS = 40


def check_columns(context: SourceContext, names: Collection[str], where: str) -> None:
    """Check that a table has all columns that a source needs.

    Args:
        context: The source and its dataset.
        names: The names of the table's columns.
        where: The table, for people.

    Raises:
        UnavailableError: A column is missing.
    """
    optional = {field.name for field in context.dataset.fields if is_optional(field.dtype)}
    for name, why in demanded_columns(context.dataset, context.source).items():
        if name not in names and (name not in optional or why != f"field {name}"):
            shown = ", ".join(sorted(names)[:SHOWN_COLUMNS])
            raise UnavailableError(
                f"{where}: there is no column {name}, which {why} needs; columns: {shown}. Add the column, or commit a "
                "higher version of the dataset that doesn't read it"
            )
