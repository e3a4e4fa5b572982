"""Strict expectations: the rows that a dataset refuses, with the reasons (decision 62)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from caraway.dtypes.types import DataType
from caraway.dtypes.values import to_json
from caraway.errors import InvalidInputError, shortened
from caraway.graph.expectations import COLUMN_PARAMETERS, STRICT, Expectation, arguments_of, columns_of, strict_part
from caraway.graph.specs import DatasetSpec

if TYPE_CHECKING:
    from caraway.compute.expectations.suite import Columns, CompiledSuite

# A reason shows at most this many characters of a value, and of the arguments of a check.
SHOWN_VALUE, SHOWN_ARGUMENTS = 100, 300
# The arguments of a check that don't change which rows pass it, so reasons leave them out.
_WITHOUT_EFFECT = frozenset({STRICT, "mostly", "result_format", "include_config", "catch_exceptions", "meta"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why a row isn't taken.

    Attributes:
        row: The number of the row among those that were checked.
        field: The column at fault; empty if the check is about several.
        message: The check, its arguments and the value.
    """

    row: int
    field: str
    message: str


class StrictChecks:
    """The strict checks of a dataset. Thread safe."""

    def __init__(
        self, suite: "CompiledSuite", expectations: Sequence[Expectation], types: Mapping[str, DataType]
    ) -> None:
        """Use `strict_checks`."""
        self._suite = suite
        self._expectations = expectations
        self._types = types

    def refused(self, columns: "Columns", rows: int) -> list[Refusal]:
        """Return the reasons why rows are refused, by check; a row that fails several checks has several.

        Args:
            columns: The values of all columns in stored form, the timestamp among them.
            rows: The number of rows.
        """
        return [
            self._refusal(expectation, row, columns)
            for expectation, checked in zip(self._expectations, self._suite.check(columns, rows), strict=True)
            for row in np.flatnonzero(checked.failed).tolist()
        ]

    def refuse(self, where: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raise `InvalidInputError`, which begins with `where`, if one of some rows in stored form is refused."""
        columns = {name: [row[name] for row in rows] for name in self._suite.columns}
        refused = self.refused(columns, len(rows))
        if refused:
            first = min(refused, key=lambda one: one.row)
            field = f", column {first.field}" if first.field else ""
            raise InvalidInputError(f"{where}, row {first.row}{field}: {first.message}")

    def _refusal(self, expectation: Expectation, row: int, columns: "Columns") -> Refusal:
        arguments = arguments_of(expectation)
        names = columns_of(arguments)
        shown = {
            name: value
            for name, value in arguments.items()
            if name not in _WITHOUT_EFFECT and not (len(names) == 1 and name in COLUMN_PARAMETERS)
        }
        given = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        check = f"{expectation.name}({shortened(given, SHOWN_ARGUMENTS)})"
        values = ", ".join(self._shown(name, columns[name][row]) for name in names)
        return Refusal(
            row=row,
            field=names[0] if len(names) == 1 else "",
            message=f"{values} isn't as expected by {check}, which is strict",
        )

    def _shown(self, name: str, value: object) -> str:
        if value is None:
            return "null"
        return shortened(repr(to_json(self._types[name])(value)), SHOWN_VALUE)


def strict_checks(dataset: DatasetSpec) -> StrictChecks | None:
    """Return the strict checks of a dataset, None if it has none."""
    suite = strict_part(dataset.expectations)
    if suite is None:
        return None
    # Only datasets with strict checks need polars and jsonschema, whose imports take longer than all others.
    from caraway.compute.expectations.suite import CompiledSuite  # noqa: PLC0415

    types = {field.name: field.dtype for field in dataset.fields}
    return StrictChecks(CompiledSuite(suite, types), suite.expectations, types)
