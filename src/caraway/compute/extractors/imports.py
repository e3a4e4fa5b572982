"""The check at a commit that this installation has the modules which a user's function imports."""

import dis
import io
import pickle
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from types import CodeType
from typing import Any


class _Unpickler(pickle.Unpickler):
    """Loads a function, and notes the code and the package of each function that was pickled by value with it."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.made: list[tuple[CodeType, str | None]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        # cloudpickle calls its `_make_function` to make each function that was pickled by value.
        return partial(self._make, found) if name == "_make_function" else found

    def _make(self, make: Any, code: CodeType, names: dict[str, Any], *rest: Any) -> Any:
        self.made.append((code, names.get("__package__")))
        return make(code, names, *rest)


def lacking(pickled: bytes) -> str:
    """Return why a function can't run with the modules that are here, "" if it can; parts of users' code may run."""
    unpickler = _Unpickler(pickled)
    try:
        unpickler.load()
        names = ((name, package) for code, package in unpickler.made for name in _imported(code))
        missing = next((name for name, package in names if find_spec(name, package) is None), "")
    except (ImportError, AttributeError) as error:
        return str(error)
    except Exception:  # noqa: BLE001 (other errors may not occur at a query)
        return ""
    return missing and f"No module named {missing!r}"


def _imported(code: CodeType) -> Iterator[str]:
    """Yield the modules that code imports in any case: in a `try`, a handler or a `with`, an import may be optional."""
    guarded = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # typeshed doesn't have it
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for number, step in enumerate(steps):
        if step.opname == "IMPORT_NAME" and not any(part.start <= step.offset < part.end for part in guarded):
            # The level of an import, which is its number of dots, was loaded two instructions before.
            yield "." * steps[number - 2].argval + step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _imported(inner)
