"""The search for the definitions of a module.

`caraway.datasets` and `caraway.featuresets` are imported only for the search: they need pandas, which a page of help
doesn't.
"""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import caraway
from caraway.apps.cli.places import failure
from caraway.errors import InvalidInputError

if TYPE_CHECKING:
    from caraway.datasets import Dataset
    from caraway.featuresets import Featureset


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The datasets and featuresets of a module, imported ones included, in the module's order."""

    datasets: "tuple[Dataset, ...]"
    featuresets: "tuple[Featureset, ...]"


def find_definitions(name: str) -> Definitions:
    """Import a module, given by its name or as a file, and gather its definitions.

    Raises:
        InvalidInputError: The module has no definitions, or fails; the text names the line of the user that failed.
    """
    unique = list({id(value): value for value in vars(_module(name)).values()}.values())
    found = Definitions(
        datasets=tuple(value for value in unique if isinstance(value, caraway.datasets.Dataset)),
        featuresets=tuple(value for value in unique if isinstance(value, caraway.featuresets.Featureset)),
    )
    if not found.datasets and not found.featuresets:
        raise InvalidInputError(f"there are no datasets and featuresets in {name}")
    return found


def _module(name: str) -> ModuleType:
    path = Path(name)
    try:
        if path.suffix != ".py":
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(name)
        sys.path.insert(0, str(path.resolve().parent))
        return importlib.import_module(path.stem)
    except Exception as error:
        told = failure(error) or f"{name} can't be imported: {error}; give a file or the name of a module"
        raise InvalidInputError(told) from error
