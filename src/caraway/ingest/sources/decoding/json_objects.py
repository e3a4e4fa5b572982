"""Values that are JSON objects."""

from collections.abc import Sequence

import orjson

from caraway.errors import InvalidInputError, TooLargeError
from caraway.ingest.json_text import is_simple, parse, position
from caraway.ingest.table import json_type


def decode_json(values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
    """Return the object in each value, or else its text, and by its number the reason why a value is no object."""
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
