"""The functions of polars that few single values need: texts beyond ASCII, and years beyond Python's."""

from collections.abc import Callable
from typing import NamedTuple

from caraway.expr.nodes import TimeUnit


class PolarsFunctions(NamedTuple):
    """Functions of polars, for single values."""

    lower: Callable[[str], str]
    upper: Callable[[str], str]
    part_of_instant: Callable[[int, TimeUnit], object]


def of_polars() -> PolarsFunctions:
    """Return the functions, whose module is imported by the first call.

    The import of polars takes longer than everything else that a query of a few rows needs.
    """
    from caraway.expr.polars import strings, time  # noqa: PLC0415

    return PolarsFunctions(strings.lower_text, strings.upper_text, time.part_of_instant)
