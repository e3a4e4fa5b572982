"""Libraries that only some calls of the client need, and that `pip install caraway` doesn't bring."""

from importlib import import_module
from typing import Any

from caraway.errors import UnavailableError


def imported(module: str, *, wanted_by: str, install: str) -> Any:
    """Import a module of an optional library, and return it.

    Args:
        module: The module's name, such as "matplotlib.pyplot".
        wanted_by: The call that needs it, for the message.
        install: The command that installs the library.

    Raises:
        UnavailableError: The module can't be imported; the text names the reason and the command.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise UnavailableError(f"{wanted_by} needs {library} ({error}); it comes with: {install}") from error
