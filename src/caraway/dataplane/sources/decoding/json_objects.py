"""Values that are JSON objects."""

from collections.abc import Sequence

import orjson

from caraway.dataplane.ingest.table import json_type
from caraway.errors import InvalidInputError, TooLargeError
from caraway.process.json_text import is_simple, parse, position

# The number of values that are checked together before they are parsed. It is small, so that all of them together
# usually have no more lists and objects than a single value may have.
TOGETHER = 32


def decode_json(values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
    """Return the object in each value, or else its text, and by its number the reason why a value is no object."""
    rows: list[object] = []
    faults: dict[int, str] = {}
    for start in range(0, len(values), TOGETHER):
        some = values[start : start + TOGETHER]
        objects = _objects(some)
        if objects is None:
            objects, found = _one_by_one(some)
            faults |= {start + at: reason for at, reason in found.items()}
        rows += objects
    return rows, faults


def _objects(values: Sequence[bytes]) -> list[object] | None:
    """Return the objects in some values; None if one of them needs further checks, or has none."""
    # If the joined bytes are within the limits of `is_simple` for bytes and brackets, those of each value are, too.
    if not is_simple(b"".join(values)):
        return None
    try:
        rows: list[object] = list(map(orjson.loads, values))
    except orjson.JSONDecodeError:
        return None
    return rows if set(map(type, rows)) <= {dict} else None


def _one_by_one(values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
    rows: list[object] = []
    faults: dict[int, str] = {}
    for value in values:
        try:
            row = orjson.loads(value) if is_simple(value) else parse(value)
        except orjson.JSONDecodeError as error:
            faults[len(rows)] = f"decode: the record isn't JSON: {position(error)}"
            row = value.decode(errors="replace")
        except (InvalidInputError, TooLargeError) as error:
            faults[len(rows)] = f"decode: the record {error}"
            row = value.decode(errors="replace")
        else:
            if not isinstance(row, dict):
                faults[len(rows)] = f"decode: the record is {json_type(row)}, an object is expected"
        rows.append(row)
    return rows, faults
