"""Mistakes in settings: the variable or the line of the file, what is wrong, and what is expected."""

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PREFIX = "CARAWAY_"
DELIMITER = "__"
# A variable without a section counts as a misspelling if it is at least this similar to a setting (difflib's ratio).
# Other variables are ignored, since they may be for other programs: Kubernetes sets CARAWAY_SERVER_PORT in each
# container beside a service "caraway-server".
ALIKE = 0.9
# Settings whose values may contain a password, so that no message shows these values.
HIDDEN = frozenset({"url", "password", "api_key", "webhook"})
EXPECTED = {
    "tuple_type": 'a list is expected, in a variable as JSON, such as ["a", "b"]',
    "dict_type": 'names with values are expected, in a variable as JSON, such as {"a": "b"}',
    "model_type": "this is a section; set one of its settings",
}


def unknown_variables(settings: type[BaseModel]) -> Iterator[str]:
    """Yield a message for each variable of the environment that names no section, or nearly names a setting."""
    for variable in os.environ:
        if not variable.upper().startswith(PREFIX):
            continue
        first, *rest = variable.lower().removeprefix(PREFIX.lower()).split(DELIMITER)
        near = get_close_matches(first, settings.model_fields, 1, ALIKE)
        if first not in settings.model_fields and first and (rest or near):
            yield _unknown(settings, (first, *rest), variable)


def explanations(settings: type[BaseModel], error: ValidationError, file: Path) -> Iterator[str]:
    """Yield a message for each mistake that pydantic found in the environment or in the settings file."""
    for problem in error.errors():
        names = tuple(str(part) for part in problem["loc"] if isinstance(part, str))
        origin = _origin(names, file)
        if problem["type"] == "extra_forbidden":
            yield _unknown(settings, names, origin)
        else:
            yield f"{origin}: {'.'.join(names)}: {_reason(problem, names)}"


def variable_of(names: Sequence[str]) -> str:
    """Return the name of the variable that sets a setting."""
    return PREFIX + DELIMITER.join(names).upper()


def _reason(problem: ErrorDetails, names: Sequence[str]) -> str:
    reason = problem["msg"].removeprefix("Value error, ").replace("Input should", "it should", 1)
    shown = f"; it is {problem['input']!r}"
    if problem["type"] == "model_type" or not HIDDEN.isdisjoint(names):
        shown = ""
    return EXPECTED.get(problem["type"], reason) + shown


def _unknown(settings: type[BaseModel], names: Sequence[str], origin: str) -> str:
    name = ".".join(names)
    near = get_close_matches(name, list(_names(settings)), 1)
    if not near:
        known = settings.model_fields.get(names[0])
        section = known.annotation if known and len(names) > 1 else settings
        return f"{origin}: there is no setting {name}; there are: {', '.join(getattr(section, 'model_fields', ()))}"
    as_variable = f" ({variable_of(near[0].split('.'))})" if origin.upper().startswith(PREFIX) else ""
    return f"{origin}: there is no setting {name}; did you mean {near[0]}{as_variable}?"


def _names(section: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield all sections and settings, with dots."""
    for name, field in section.model_fields.items():
        yield before + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation, f"{before}{name}.")


def _origin(names: Sequence[str], file: Path) -> str:
    """Return the variable or the line of the file that sets a setting, or its section; the variable if neither does."""
    given = {variable.upper(): variable for variable in os.environ}
    lines = _lines(file)
    for count in range(len(names), 0, -1):
        if (variable := variable_of(names[:count])) in given:
            return given[variable]
        if line := lines.get(".".join(names[:count])):
            return f"{file}:{line}"
    return variable_of(names)


def _lines(file: Path) -> dict[str, int]:
    """Return the lines of the sections and settings of a file. It is TOML, which pydantic has read without an error."""
    found: dict[str, int] = {}
    section = ""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            section = f"{head[1]}."
            found[head[1]] = number
        elif setting := re.match(r"\s*([\w.-]+)\s*=", line):
            found[section + setting[1]] = number
    return found
