"""The check of JSON schemas in expectations: those whose validation could take exponential time are refused."""

from typing import Any
from urllib.parse import unquote

from caraway.errors import DefinitionError
from caraway.process.patterns import searcher

# A schema may have at most this many parts, counted after each reference is replaced by the part that it refers to.
# Validation visits each of these parts at most once for each part of a document. Schemas that Python models generate
# have some hundreds of parts.
MAX_PARTS = 5_000
# Keywords that are refused. The first three belong to references that `check_schema` doesn't count. `patternProperties`
# matches the names of properties by Python's own regular expressions, whose time isn't linear.
UNSUPPORTED = ("$anchor", "$dynamicRef", "$recursiveRef", "patternProperties")


def check_schema(schema: Any) -> None:
    """Check a JSON schema.

    Raises `DefinitionError` if it refers to itself or to another document, is too large with its references replaced,
    or has a keyword or a pattern that isn't supported.
    """
    waiting: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    parts = 0
    while waiting:
        part, inside = waiting.pop()
        parts += 1
        if parts > MAX_PARTS:
            raise DefinitionError(f"json_schema has more than {MAX_PARTS:,} parts, with its references replaced")
        if isinstance(part, list):
            waiting += [(item, inside) for item in part]
        elif isinstance(part, dict):
            found = next((keyword for keyword in UNSUPPORTED if keyword in part), None)
            if found is not None or (isinstance(part.get("$id"), str) and part is not schema):
                raise DefinitionError(f"json_schema: {found or '$id in a part'} isn't supported; write the parts out")
            if isinstance(part.get("pattern"), str):
                searcher(part["pattern"])
            if isinstance(reference := part.get("$ref"), str):
                if reference in inside:
                    raise DefinitionError(f"json_schema: {reference} refers to itself; write out so many levels of it")
                waiting.append((_referred(schema, reference), (*inside, reference)))
            waiting += [(value, inside) for value in part.values()]


def _referred(schema: Any, reference: str) -> Any:
    """Return the part of a schema to which a reference leads. Raises `DefinitionError` if there is none in it."""
    found = schema
    if reference != "#":
        for step in unquote(reference).removeprefix("#/").split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) and reference.startswith("#/") else None
    if not isinstance(found, dict | bool):
        raise DefinitionError(f"json_schema: {reference} leads to no part of this schema; as in: #/$defs/Address")
    return found
