"""Extractors, which compute features. `@extractor` makes one from a user's function."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast, overload

from caraway.datasets.dataset import Dataset
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.capture.includes import INCLUDES_ATTRIBUTE, included
from caraway.graph.envs import EnvSelector, selector
from caraway.graph.specs import AliasExtractor, ExpressionExtractor, LookupExtractor, Metadata
from caraway.lib.metadata import documented, get_metadata
from caraway.lib.params import INPUTS_ATTRIBUTE, OUTPUTS_ATTRIBUTE

Generated = LookupExtractor | AliasExtractor | ExpressionExtractor


class ExtractorType(StrEnum):
    """The origin of an extractor's values."""

    FUNCTION = "function"
    LOOKUP = "lookup"
    ALIAS = "alias"
    EXPRESSION = "expression"


class Extractor:
    """The computation of some features of a featureset.

    It is a user's function `(cls, ts, *series)`, or `feature(...)` made it from a reference and `function` is None.

    Attributes:
        name: The name, unique in its featureset.
        extractor_type: The origin of the values: a user's function, a lookup, an alias or an expression.
        featureset: Name of the featureset; empty until the featureset is defined.
        inputs: Full names of the features that it needs.
        outputs: Full names of the features that it computes.
        datasets: Names of the datasets that it looks up.
        version: The version, which must rise when the extractor changes.
        env: Names of the environments in which it is used; empty for all.
        metadata: Owner, description and flags; those of its feature, if `feature(...)` made it.
    """

    def __init__(self, name: str, extractor_type: ExtractorType, version: int, env: tuple[str, ...]) -> None:
        self.name = name
        self.extractor_type = extractor_type
        self.version = version
        self.env = env
        self.featureset = ""
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.datasets: tuple[str, ...] = ()
        self.function: Callable[..., Any] | None = None

    @property
    def metadata(self) -> Metadata:
        """Owner, description and flags."""
        return get_metadata(self) or Metadata()

    def fqn(self) -> str:
        """Return the full name, `Featureset.extractor`."""
        return f"{self.featureset}.{self.name}"

    def __repr__(self) -> str:
        return f"Extractor({self.fqn()})"


class GeneratedExtractor(Extractor):
    """An extractor that `feature(...)` made."""

    def __init__(self, featureset: str, spec: Generated) -> None:
        kinds = {
            LookupExtractor: ExtractorType.LOOKUP,
            AliasExtractor: ExtractorType.ALIAS,
            ExpressionExtractor: ExtractorType.EXPRESSION,
        }
        super().__init__(spec.name, kinds[type(spec)], spec.version, spec.env)
        self.spec = spec
        self.featureset = featureset
        self.inputs = (spec.input,) if isinstance(spec, AliasExtractor) else spec.inputs
        self.outputs = (spec.output,)
        self.datasets = (spec.dataset,) if isinstance(spec, LookupExtractor) else ()

    @property
    def metadata(self) -> Metadata:
        """Owner, description and flags of the feature."""
        return self.spec.metadata


class FunctionExtractor(Extractor):
    """An extractor that a user wrote. Its names are resolved (`bind`) when its featureset is defined."""

    def __init__(
        self, function: Callable[..., Any], datasets: list[Dataset], version: int, env: tuple[str, ...]
    ) -> None:
        super().__init__(function.__name__, ExtractorType.FUNCTION, version, env)
        self.function: Callable[..., Any] = function
        self.dependencies = datasets
        self.datasets = tuple(dataset.fqn() for dataset in datasets)

    @property
    def given_inputs(self) -> tuple[Any, ...] | None:
        """The features that `@inputs` named; None if it is missing."""
        return self._marked(INPUTS_ATTRIBUTE)

    @property
    def given_outputs(self) -> tuple[Any, ...] | None:
        """The features that `@outputs` named; None if it is missing."""
        return self._marked(OUTPUTS_ATTRIBUTE)

    @property
    def metadata(self) -> Metadata:
        """Owner, description and flags; `@meta` may stand above or below `@extractor`."""
        return documented(get_metadata(self) or get_metadata(self.function), self.function)

    def bind(self, featureset: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        """Set the resolved names, and add the helpers of an `@includes` above `@extractor` to the function."""
        self.featureset, self.inputs, self.outputs = featureset, inputs, outputs
        if above := self.__dict__.get(INCLUDES_ATTRIBUTE):
            setattr(self.function, INCLUDES_ATTRIBUTE, tuple(dict.fromkeys((*above, *included(self.function)))))

    def _marked(self, attribute: str) -> tuple[Any, ...] | None:
        # Decorators above `@extractor` set attributes of this object, and decorators below it set attributes of the
        # function.
        found = self.__dict__.get(attribute, getattr(self.function, attribute, None))
        return None if found is None else tuple(found)


# The annotations say that `@extractor` returns a function, because a featureset has the extractor as a function to
# call.
Function = Callable[..., Any]


@overload
def extractor(function: Function) -> Function: ...
@overload
def extractor(
    *,
    deps: list[Dataset] | None = None,
    depends_on: list[Dataset] | None = None,
    version: int = 0,
    env: EnvSelector = None,
) -> Callable[[Function], Function]: ...
def extractor(
    function: Callable[..., Any] | None = None,
    *,
    deps: list[Dataset] | None = None,
    depends_on: list[Dataset] | None = None,
    version: int = 0,
    env: EnvSelector = None,
) -> Function | Callable[[Function], Function]:
    """Declare a function of a featureset that computes features.

    It takes `cls`, `ts` (a Series of times, one a row) and a Series for each of its `@inputs`, and returns a named
    Series, or a DataFrame whose columns are features.

    Args:
        function: The function, if the decorator stands bare.
        deps: The datasets that it looks up.
        depends_on: Another name of `deps`.
        version: Must rise when the function changes.
        env: The environments in which the function is used; all by default.

    Raises:
        DefinitionTypeError: The function's first parameters aren't `cls` and `ts`, or an argument has the wrong type.
        DefinitionError: A dataset in `deps` has no index, or both `deps` and `depends_on` are given.
    """
    if deps is not None and depends_on is not None:
        raise DefinitionError("extractor: deps and depends_on mean the same; give one")
    found = deps if deps is not None else depends_on
    datasets = [] if found is None else found

    def decorate(decorated: Function) -> Function:
        if not inspect.isfunction(decorated):
            raise DefinitionTypeError(
                f"@extractor goes onto a function (cls, ts, ...), not {type(decorated).__name__} {decorated!r}"
            )
        where = f"extractor {decorated.__name__}"
        _check_signature(where, decorated)
        _check_datasets(where, datasets)
        if not isinstance(version, int) or isinstance(version, bool):  # type: ignore[redundant-expr]  # users pass anything
            raise DefinitionTypeError(f"{where}: the version is an int, not {version!r}")
        return cast("Function", FunctionExtractor(decorated, datasets, version, selector(env, where)))

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


def _check_datasets(where: str, datasets: Any) -> None:
    if not isinstance(datasets, list):
        raise DefinitionTypeError(f"{where}: deps is a list of datasets, not {datasets!r}")
    for item in datasets:
        if not isinstance(item, Dataset):
            raise DefinitionTypeError(f"{where}: deps holds {item!r}, which is not a dataset")
        index = item.to_spec().index
        if index is None or not (index.online or index.offline):
            raise DefinitionError(f"{where}: {item.fqn()} in deps has no index; set index=True in its @dataset")
