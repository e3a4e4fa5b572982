"""`mock`, which passes a client to a test as its argument `client`; and `log`, which needs no webhook."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import pandas as pd

from caraway.client.arguments import dataset_name
from caraway.datasets.dataset import Dataset
from caraway.errors import InvalidInputError
from caraway.testing import hooks
from caraway.testing.client import MockClient
from caraway.testing.integration import IntegrationClient

# A test with this in its name needs a server with data, so `mock` doesn't run it.
NEEDS_DATA = "data_integration"
RUN_AGAIN = "USE_INT_CLIENT"


Rest = ParamSpec("Rest")
Suite = TypeVar("Suite")
Result = TypeVar("Result")


# The types of the three forms of a test: a function whose first parameter is the client, a method whose first parameter
# after `self` is the client, and any other, such as a function that takes the client as a keyword.
@overload
def mock(function: Callable[Concatenate[MockClient, Rest], Result]) -> Callable[Rest, Result]: ...
@overload
def mock(
    function: Callable[Concatenate[Suite, MockClient, Rest], Result],
) -> Callable[Concatenate[Suite, Rest], Result]: ...
@overload
def mock(function: Callable[..., Result]) -> Callable[..., Result]: ...
def mock(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a test with a fresh `MockClient` as its keyword argument `client`; other arguments are passed on.

    The name and the rest of the signature stay, so that fixtures, parameters and methods work. A function whose name
    contains `data_integration` isn't run and returns True. With `USE_INT_CLIENT=1` in the environment the test is run
    again with an `IntegrationClient`.

    Args:
        function: A function, a method, or a class whose constructor takes the client.
    """

    @functools.wraps(function, updated=() if isinstance(function, type) else functools.WRAPPER_UPDATES)
    def run(*args: Any, **kwargs: Any) -> Any:
        if NEEDS_DATA in function.__name__:
            return True
        with hooks.forgotten_afterwards():
            result = function(*args, **kwargs, client=MockClient())
        if os.environ.get(RUN_AGAIN) == "1":
            with IntegrationClient() as client:
                function(*args, **kwargs, client=client)
        return result

    signature = inspect.signature(function)
    rest = [parameter for parameter in signature.parameters.values() if parameter.name != "client"]
    run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # read by inspect
    return run


def log(dataset: Dataset, df: pd.DataFrame) -> None:
    """Write rows directly to a dataset, as if they were output of its source or, in the current branch, its pipeline.

    Raises:
        InvalidInputError: There is no mock client, the dataset isn't committed, or the rows don't fit.
        DefinitionTypeError: The argument isn't a dataset.
    """
    name = dataset_name(dataset, "log")
    client = hooks.newest_client()
    if client is None:
        raise InvalidInputError(f"log: there is no MockClient; commit dataset {name} with one first")
    client.log_rows(name, df)
