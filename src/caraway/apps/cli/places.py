"""The lines of definitions, in front of what is wrong with them: `features.py:17: …`."""

import ast
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import caraway
from caraway.errors import CarawayError

if TYPE_CHECKING:
    from caraway.apps.cli.definitions import Definitions

# The folders of Python, of the installed libraries and of Caraway: no line of a user's definitions is in them.
_LIBRARIES = tuple(
    Path(folder).resolve()
    for folder in (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *caraway.__path__)
)
# Messages name an entity after its kind, or begin with its name, as in "dataset 'Orders' is …" or "Orders.by_user: …".
# A member may follow the entity, as in "dataset Orders: field price: …".
_NAMED = re.compile(
    r"(?:\b(?:dataset|featureset|feature|pipeline|extractor|function)s? |^)'?([A-Za-z_]\w*(?:\.\w+)?)"
    r"(?:: (?:field|key|feature) (\w+))?"
)


def failure(error: Exception) -> str | None:
    """Return what a user's module raised while it was imported, after the innermost of the user's own lines.

    None if no line of the user took part, as when there is no such module.
    """
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    text = str(error)
    if isinstance(error, SyntaxError):
        lines.append((error.filename or "", error.lineno))
        text = error.msg
    own = [place for place in lines if _is_own(place[0])]
    if not own:
        return None
    if not isinstance(error, CarawayError):
        # The text of other errors is often unclear without their class. Caraway's are complete by themselves.
        return f"{_spelled(*own[-1])}: {type(error).__name__}: {text}"
    file, line = own[-1]
    return _after_its_line(text, _decorated(file, line)) or f"{_spelled(file, line)}: {text}"


def placed(text: str, definitions: "Definitions") -> str:
    """Return a message about definitions after the line of the first one that it names; unchanged if it names none."""
    return _after_its_line(text, _lines(definitions)) or text


def _after_its_line(text: str, lines: Mapping[str, str]) -> str | None:
    """Return a message after the line of the first entity or member that it names, None if none has a line."""
    for name, member in _NAMED.findall(text):
        if place := lines.get(f"{name}.{member}") or lines.get(name) or lines.get(name.partition(".")[0]):
            return f"{place}: {text}"
    return None


def _decorated(file: str, line: int | None) -> dict[str, str]:
    """Return the places of the members of the class whose decorator is at a line; none if there is no such class."""
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.ClassDef) and line in {decorator.lineno for decorator in node.decorator_list}:
            return {name: _spelled(file, at) for name, at in _classes([node], {node.name}) if name != node.name}
    return {}


def _lines(definitions: "Definitions") -> dict[str, str]:
    """Return the places of all definitions and of their members, by full name."""
    found: dict[str, str] = {}
    modules = {vars(dataset)["_module"] for dataset in definitions.datasets}
    modules |= {featureset.original_cls.__module__ for featureset in definitions.featuresets}
    names = {dataset.fqn() for dataset in definitions.datasets}
    names |= {featureset.original_cls.__name__ for featureset in definitions.featuresets}
    for module in modules:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is not None:
            found |= {name: _spelled(file, line) for name, line in _classes(_parsed(file).body, names)}
    return found


def _parsed(file: str) -> ast.Module:
    """Return the syntax of a file; that of an empty one if there is no text, as of a module without its source."""
    # This module reads files for errors, so no file may cause another one. `linecache` heeds a file's own encoding.
    return ast.parse("".join(linecache.getlines(file)))


def _classes(body: Sequence[ast.stmt], names: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the full names of classes that define `names`, and of their members, each with its line."""
    for statement in body:
        if isinstance(statement, ast.ClassDef) and statement.name in names:
            yield statement.name, statement.lineno
            for member in statement.body:
                match member:
                    case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                        yield f"{statement.name}.{name}", member.lineno


def _is_own(file: str) -> bool:
    path = Path(file)
    return path.is_file() and not any(path.resolve().is_relative_to(folder) for folder in _LIBRARIES)


def _spelled(file: str, line: int | None) -> str:
    path = Path(file).resolve()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{line}"
