"""Pickling of users' functions by value, so that they run in a process that doesn't have the user's modules."""

import functools
import io
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from caraway.errors import DefinitionError
from caraway.graph.capture.captured import Captured, captured, names_in
from caraway.graph.capture.code_text import code_text, source_text
from caraway.graph.capture.includes import included
from caraway.graph.functions import PythonFunction
from caraway.graph.runtime import FeaturesetHandle, ShippedExtractor

# The folders of installed packages. Functions from other folders are the user's own code, so their code is pickled with
# the functions that use them.
_INSTALLED = tuple(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def ship(
    where: str,
    function: Callable[..., Any],
    featureset: str,
    features: tuple[str, ...],
    members: Mapping[str, Any],
) -> bytes:
    """Pickle an extractor with all that it uses of the user's modules.

    Args:
        where: The name of the extractor in messages.
        function: The extractor.
        featureset: Name of its featureset.
        features: Names of the featureset's features.
        members: The rest of its class body, whose helpers the function may use through `cls`.

    Raises:
        DefinitionError: Something that the function uses can't be pickled.
    """
    used = {name: _bare(member) for name, member in _reachable(function, members).items()}
    shipped = ShippedExtractor(_bare(function), FeaturesetHandle(featureset, features, used))
    return _pickled(where, shipped, [function, *included(function)])


def python_function(
    where: str, function: Callable[..., Any], helpers: Iterable[Callable[..., Any]] = ()
) -> PythonFunction:
    """Return the spec of a user's function: its text, its pickle, and the texts of its helpers.

    Args:
        where: The name of the function in messages.
        function: The function, a lambda or anything else that can be called.
        helpers: Helpers that `@includes` names elsewhere, such as on the pipeline around the function.

    Raises:
        DefinitionError: Something that the function uses can't be pickled.
    """
    helpers = tuple(
        dict.fromkeys([*included(function), *(h for helper in helpers for h in (helper, *included(helper)))])
    )
    return PythonFunction(
        name=getattr(function, "__name__", type(function).__name__),
        source_code=code_text(function),
        pickled=_pickled(where, _bare(function), [function, *helpers]),
        includes=(*(code_text(helper) for helper in helpers), *_captured([function, *helpers])),
    )


def _pickled(where: str, value: object, functions: Sequence[Callable[..., Any]]) -> bytes:
    """Pickle a value by value, with all that it uses of the modules of `functions`."""
    registered = [module for module in _user_modules(functions) if _register(module)]
    file = io.BytesIO()
    try:
        _Pickler(file, _look_through(functions).members).dump(value)
    except Exception as error:
        raise DefinitionError(f"{where}: the function can't be sent: {error}") from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles a definition as its handle, with those helpers of its class body that the functions use."""

    def __init__(self, file: io.BytesIO, members: Mapping[int, Mapping[str, Any]]) -> None:
        super().__init__(file)
        self._members = {owner: {n: _bare(member) for n, member in used.items()} for owner, used in members.items()}

    def reducer_override(self, obj: Any) -> Any:
        if used := self._members.get(id(obj)):
            handle, arguments = obj.__reduce__()
            return handle, (*arguments, used)
        return super().reducer_override(obj)


def source_with_includes(function: Callable[..., Any]) -> str:
    """Return the texts of a function, of its included helpers and of what they use, as far as they are at hand."""
    parts = [function, *included(function)]
    return "\n".join(text for text in (*map(source_text, parts), *_captured(parts)) if text)


def _captured(functions: Sequence[Callable[..., Any]]) -> tuple[str, ...]:
    text = _look_through(functions).text
    return (text,) if text else ()


def _look_through(functions: Sequence[Callable[..., Any]]) -> Captured:
    return captured(map(_innermost, functions), _is_a_users_function)


def _is_a_users_function(function: Callable[..., Any]) -> bool:
    module = sys.modules.get(function.__module__)
    return module is None or _is_a_users(module)


def _bare(member: Any) -> Any:
    """Return a copy of a function without the attributes of decorators, which would be pickled too."""
    if isinstance(member, (classmethod, staticmethod)):
        return type(member)(_bare(member.__func__))
    if not isinstance(member, types.FunctionType):
        return member
    copy = types.FunctionType(
        member.__code__, member.__globals__, member.__name__, member.__defaults__, member.__closure__
    )
    copy.__kwdefaults__ = member.__kwdefaults__
    # cloudpickle pickles a function by reference if it can be imported by its qualified name. The name set here can't
    # be found in any module, so the function is pickled by value, with its code.
    copy.__qualname__ = f"{member.__qualname__}.<shipped>"
    return copy


def _reachable(function: Callable[..., Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of the class body that a function uses by name, and those that these use."""
    found: dict[str, Any] = {}
    pending = [function]
    while pending:
        for name in names_in(getattr(pending.pop(), "__code__", None)):
            if name in members and name not in found:
                found[name] = members[name]
                pending.append(getattr(members[name], "__func__", members[name]))
    return found


def _user_modules(functions: Iterable[Callable[..., Any]]) -> list[types.ModuleType]:
    names = dict.fromkeys(getattr(_innermost(function), "__module__", None) for function in functions)
    return [sys.modules[name] for name in names if name in sys.modules and _is_a_users(sys.modules[name])]


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_a_users(module: types.ModuleType) -> bool:
    """Return whether a module is the user's, and not one that is installed wherever the function runs."""
    package = module.__name__.partition(".")[0]
    if package == "caraway" or package in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(module, "__file__", None)
    return file is None or not any(Path(file).is_relative_to(folder) for folder in _INSTALLED)


def _register(module: types.ModuleType) -> bool:
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return False
    cloudpickle.register_pickle_by_value(module)
    return True
