"""Reading of a dataset's expectations from the method that lists them."""

import inspect
from typing import Any

from caraway.errors import DefinitionError
from caraway.graph.expectations import ExpectationSuite
from caraway.lib.expectations import EXPECTATIONS_ATTRIBUTE, suite_of
from caraway.lib.metadata import get_metadata


def expectations_of(body: type, dataset: Any) -> ExpectationSuite | None:
    """Run the method that `@expectations` marks, if the class body has one, and return its expectations.

    Args:
        body: The class body of the dataset.
        dataset: The dataset itself, complete with its pipelines: the method's `cls`.

    Raises:
        DefinitionError: There are several methods, the method isn't one of `cls` alone or has `@meta`, or the dataset
        is terminal. DefinitionTypeError: The method returns no list of expectations.
    """
    where = f"dataset {dataset.fqn()}"
    marked = {name: member for name, member in vars(body).items() if hasattr(member, EXPECTATIONS_ATTRIBUTE)}
    if not marked:
        return None
    if len(marked) > 1:
        raise DefinitionError(f"{where} has several methods with @expectations: {', '.join(marked)}; put all into one")
    (name, method), *_ = marked.items()
    parameters = list(inspect.signature(method).parameters)
    if parameters != ["cls"]:
        raise DefinitionError(f"{where}: expectations {name} takes cls alone, not ({', '.join(parameters)})")
    if get_metadata(method) is not None:
        raise DefinitionError(f"{where}: expectations {name} can't have @meta; put it onto the dataset")
    if dataset.is_terminal:
        raise DefinitionError(
            f"{where}: expectations {name} are impossible: a pipeline ends in an aggregate over continuous windows, "
            "whose values come into being when they are read"
        )
    return suite_of(dataset.fqn(), getattr(method, EXPECTATIONS_ATTRIBUTE).version, method(dataset))
