"""The search for clocks and chance in the text of users' functions, which is read and never run."""

import ast
import textwrap
from functools import lru_cache

# Modules, and names in modules, by which Python programs read the time or draw random numbers. A function that uses one
# of them may return another value at each call.
_MODULES = frozenset({"random", "uuid"})
_NAMES = frozenset(
    {
        "default_rng",
        "getrandbits",
        "monotonic",
        "now",
        "perf_counter",
        "randint",
        "random",
        "time_ns",
        "today",
        "token_bytes",
        "token_hex",
        "urandom",
        "utcnow",
        "uuid1",
        "uuid4",
    }
)
_TIME = "time"
KEPT = 1_000


@lru_cache(maxsize=KEPT)
def may_vary(source_code: str) -> bool:
    """Return whether a function's text uses a clock or draws numbers; False if the text can't be read."""
    try:
        tree = ast.parse(textwrap.dedent(source_code))
    except (SyntaxError, ValueError):
        return False
    return any(_varies(node) for node in ast.walk(tree))


def _varies(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] in _MODULES for alias in names)
        case ast.ImportFrom(module=module):
            return module in _MODULES
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module == _TIME:
            return name in {_TIME, *_NAMES}
        case ast.Attribute(attr=name):
            return name in _NAMES
        case ast.Name(id=name):
            return name in _MODULES
        case _:
            return False
