"""Public names of a package that are imported when they are first asked for (PEP 562).

`import caraway` and the commands that talk to a server would otherwise load pandas, polars and pyarrow, which takes
longer than most commands run.
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def deferred(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` for a package.

    Args:
        package: The name of the package.
        names: The import of each public name: `package.module:attribute`, or `package.module` for a module itself.
    """

    def find(name: str) -> object:
        where = names.get(name)
        if where is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = where.partition(":")
        found: object = importlib.import_module(module)
        if attribute:
            found = getattr(found, attribute)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return find, listed
