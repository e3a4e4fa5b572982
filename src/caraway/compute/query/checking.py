"""Checks of the values that expressions yield, for all ways to compute them."""

from caraway.compute.query.model import Computed
from caraway.dtypes.types import is_optional, type_name
from caraway.dtypes.values import Convert
from caraway.errors import InvalidInputError
from caraway.expr.printer import print_node


def checked(values: list[object], feature: Computed, check: Convert | None) -> list[object]:
    """Return the values of a feature if its type allows them; raise InvalidInputError if not."""
    if not is_optional(feature.dtype) and None in values:
        raise InvalidInputError(
            f"{feature.column} is declared {type_name(feature.dtype)}, but {print_node(feature.expr)} is null in row "
            f"{values.index(None)}"
        )
    if check is not None:
        for row, value in enumerate(values):
            if value is not None:
                try:
                    check(value)
                except InvalidInputError as error:
                    raise InvalidInputError(
                        f"{feature.column} = {print_node(feature.expr)}, row {row}: {error}"
                    ) from None
    return values
