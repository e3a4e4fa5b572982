"""The parts of rows before and after a change that Debezium leaves out.

Postgres logs only the key of the old row, unless the table has REPLICA IDENTITY FULL. Then Debezium sends no `before`
with an update, and one with a delete in which all columns but the key are null, or the empty value of their type if
they can't be null. Postgres doesn't log large values (TOAST) that an update leaves unchanged either; in their place
Debezium sends a text that says so, in `after` and also in such a `before`.
"""

import base64
from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal

from caraway.compute.rows.logical_types import EPOCH, FIRST_DAY
from caraway.errors import InvalidInputError

# The default of Debezium's setting unavailable.value.placeholder.
PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = PLACEHOLDER.encode()
_UNAVAILABLE = frozenset({PLACEHOLDER, base64.b64encode(_BYTES).decode()})
# The Python types of values that are never a placeholder, so they needn't be compared with it.
_AVAILABLE: frozenset[type] = frozenset({int, float, bool, type(None)})
# The empty values of the types that Debezium writes as text: text, instants with a time zone, JSON, and decimals in
# base64.
_EMPTY_TEXTS = frozenset({"", "1970-01-01T00:00:00Z", "{}", "AA=="})


def completed(
    after: Mapping[str, object], before: Mapping[str, object] | None, needed: Collection[str] | None
) -> Mapping[str, object]:
    """Return the row after a change, with unchanged values that weren't sent taken from the row before.

    Args:
        after: The row after the change.
        before: The row before it.
        needed: The columns that are read; None if any may be.

    Raises:
        InvalidInputError: A column that is needed has no value in either row.
    """
    missing = [name for name, value in after.items() if type(value) not in _AVAILABLE and _is_unavailable(value)]
    if not missing:
        return after
    made = dict(after)
    for name in missing:
        # Debezium's placeholder must not be read as the value of the column. If there is no old value and the column
        # isn't needed, the column is left out.
        del made[name]
        old = None if before is None else before.get(name)
        if old is not None and not _is_unavailable(old):
            made[name] = old
        elif needed is None or name in needed:
            raise InvalidInputError(
                f"after has no value for {name}, which the update left unchanged: Postgres doesn't log such large "
                "values (TOAST); use ALTER TABLE ... REPLICA IDENTITY FULL, and update the row again"
            )
    return made


def is_whole(row: Mapping[str, object], needed: Collection[str], keys: Collection[str]) -> bool:
    """Return whether a row before a change has all that is read of it, and more than its keys."""
    if any(name not in row or _is_unavailable(row[name]) for name in needed):
        return False
    return not all(name in keys or _is_empty(value) or _is_unavailable(value) for name, value in row.items())


def _is_unavailable(value: object) -> bool:
    match value:
        case str():
            return value in _UNAVAILABLE
        case bytes():
            return value == _BYTES
        case list():
            # In an array of whole numbers, the elements are the bytes of the placeholder.
            return bool(value) and (value == list(_BYTES) or all(_is_unavailable(item) for item in value))
        case dict():
            return len(value) == 1 and all(_is_unavailable(key) and _is_unavailable(of) for key, of in value.items())
        case _:
            return False


def _is_empty(value: object) -> bool:
    match value:
        case str():
            return value in _EMPTY_TEXTS
        case datetime():
            return value == EPOCH
        case date():
            return value == FIRST_DAY
        case None | bool() | int() | float() | Decimal() | bytes() | list() | dict():
            return not value
        case _:
            return False
