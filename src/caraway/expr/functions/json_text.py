"""JSON documents: parsing them, and writing parts of them as text.

If an object has two members of one name, the last one counts. Numbers without fraction and exponent that fit 64 bits
are ints, all others doubles. A document is invalid if it has a number beyond the doubles, NaN, a text with half of a
surrogate pair, or more than 200 levels.
"""

from typing import Any

import orjson

from caraway.dtypes.values import INT_MAX
from caraway.expr.functions.json_path import JsonPath, first_match

# A document may have at most this many levels of nested arrays and objects; a deeper one is refused as invalid JSON.
# Recursive functions read documents, and 200 levels are far from overflowing their stack.
DEEPEST = 200


def load_json(text: str) -> Any:
    """Parse a document. Raises `ValueError` if the text is no valid JSON."""
    document = orjson.loads(text)
    if text.count("[") + text.count("{") > DEEPEST and _depth(document) > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} levels")
    return document


def extract(path: JsonPath, text: str) -> str | None:
    """Return the first match of a path in a document as text: a text as it is, anything else as JSON.

    The result is null if the document is invalid, or if nothing or null matches.
    """
    try:
        document = load_json(text)
    except ValueError:
        return None
    found = first_match(path, document)
    return found if found is None or isinstance(found, str) else json_text(found)


def json_text(value: Any) -> str:
    """Write a value as JSON without blanks, doubles as `num.to_string` does, and with as few escapes as JSON allows."""
    match value:
        case bool() | None:
            return "true" if value else "false" if value is False else "null"
        case int() if value <= INT_MAX:
            return str(value)
        case int() | float():
            return orjson.dumps(float(value)).decode().replace("e+", "e")
        case str():
            return orjson.dumps(value).decode()
        case list():
            return f"[{','.join(map(json_text, value))}]"
        case _:
            return "{" + ",".join(f"{json_text(key)}:{json_text(item)}" for key, item in value.items()) + "}"


def _depth(document: Any) -> int:
    depth, level = 0, [document]
    while level := [value for value in level if isinstance(value, (dict, list))]:
        depth += 1
        level = [child for value in level for child in (value.values() if isinstance(value, dict) else value)]
    return depth
