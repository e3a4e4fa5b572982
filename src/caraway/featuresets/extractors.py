"""`@extractor`: features computed by a Python function."""

import inspect
from collections.abc import Callable
from typing import Any

from caraway.datasets.dataset import Dataset
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.envs import EnvSelector, selector
from caraway.lib.params import INPUTS_ATTRIBUTE, OUTPUTS_ATTRIBUTE


class Extractor:
    """A function `(cls, ts, *series)` of a featureset's class body that computes some of its features."""

    def __init__(
        self, function: Callable[..., Any], datasets: list[Dataset], version: int, env: tuple[str, ...]
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.datasets = datasets
        self.version = version
        self.env = env
        #: None: the decorator is missing.
        self.inputs: tuple[Any, ...] | None = getattr(function, INPUTS_ATTRIBUTE, None)
        self.outputs: tuple[Any, ...] | None = getattr(function, OUTPUTS_ATTRIBUTE, None)


def extractor(
    function: Callable[..., Any] | None = None,
    *,
    deps: list[Dataset] | None = None,
    depends_on: list[Dataset] | None = None,
    version: int = 0,
    env: EnvSelector = None,
) -> Any:  # noqa: ANN401 (both forms)
    """Declare a function of a featureset that computes features.

    It takes `cls`, `ts` (a Series of times, one a row) and a Series for each of its `@inputs`, and returns a named
    Series, or a DataFrame whose columns are features.

    Args:
        function: The function, if the decorator stands bare.
        deps: The datasets that it looks up.
        depends_on: The same.
        version: Must rise when the function changes.
        env: In which environments the function is used; all by default.

    Raises:
        DefinitionTypeError: The function's first parameters aren't `cls` and `ts`, or an argument has the wrong type.
        DefinitionError: A dataset in `deps` has no index, or both `deps` and `depends_on` are given.
    """
    if deps is not None and depends_on is not None:
        raise DefinitionError("extractor: deps and depends_on mean the same; give one")
    found = deps if deps is not None else depends_on
    datasets = [] if found is None else found

    def decorate(decorated: Callable[..., Any]) -> Extractor:
        where = f"extractor {decorated.__name__}"
        _check_signature(where, decorated)
        _check_datasets(where, datasets)
        if not isinstance(version, int) or isinstance(version, bool):  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionTypeError(f"{where}: the version is an int, not {version!r}")
        return Extractor(decorated, datasets, version, selector(env, where))

    return decorate if function is None else decorate(function)


def _check_signature(where: str, function: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(function).parameters)
    if not parameters or parameters[0] != "cls":
        raise DefinitionTypeError(
            f"{where}: the first parameter is cls, not {parameters[0] if parameters else 'nothing'}"
        )
    if len(parameters) < 2 or parameters[1] not in ("ts", "_ts"):
        found = parameters[1] if len(parameters) > 1 else "nothing"
        raise DefinitionTypeError(f"{where}: the second parameter is ts (or _ts), not {found}")


def _check_datasets(where: str, datasets: Any) -> None:  # noqa: ANN401 (checked here)
    if not isinstance(datasets, list):
        raise DefinitionTypeError(f"{where}: deps is a list of datasets, not {datasets!r}")
    for item in datasets:
        if not isinstance(item, Dataset):
            raise DefinitionTypeError(f"{where}: deps holds {item!r}, which is not a dataset")
        index = item.to_spec().index
        if index is None or not (index.online or index.offline):
            raise DefinitionError(f"{where}: {item.fqn()} in deps has no index; set index=True in its @dataset")
