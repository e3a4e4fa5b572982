"""`@featureset`, which turns a class body into a featureset."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from caraway.datasets.arguments import kind
from caraway.dtypes.annotations import dtype_of, own_annotations
from caraway.dtypes.structs import take_as_struct
from caraway.errors import DefinitionError, DefinitionTypeError, meant
from caraway.featuresets.display import featureset_html
from caraway.featuresets.extractors import Extractor, ExtractorType, FunctionExtractor, Generated, GeneratedExtractor
from caraway.featuresets.features import Feature, feature
from caraway.featuresets.generated import generate, stored_default
from caraway.graph.capture.code_trees import fields_text
from caraway.graph.capture.shipping import ship, source_with_includes
from caraway.graph.runtime import FeaturesetHandle
from caraway.graph.specs import AliasExtractor, FeaturesetSpec, PythonExtractor
from caraway.graph.specs import Extractor as ExtractorSpec
from caraway.lib.expectations import EXPECTATIONS_ATTRIBUTE
from caraway.lib.metadata import documented, get_metadata, module_owner

RESERVED = ("fqn_", "dtype", "featureset_name", "featureset", "extractor", "extractors", "features")


class Featureset:
    """A featureset: its features as attributes, and the extractors that compute them."""

    def __init__(self, body: type, features: dict[str, Feature], generated: list[Generated]) -> None:
        self._name = self.__name__ = body.__name__
        self.__qualname__ = body.__qualname__
        self.original_cls = body
        self._features = features
        self._generated = [GeneratedExtractor(self._name, item) for item in generated]
        self._functions = {item.name: item for item in vars(body).values() if isinstance(item, FunctionExtractor)}
        self.__doc__ = body.__doc__
        for item in self._functions.values():
            # Unknown names are refused here, so that the error's traceback shows the definition of the featureset.
            item.bind(self._name, self._inputs(item), self._outputs(item))

    def __getattr__(self, name: str) -> "Member":
        return cast("Member", self._member(name))

    def _member(self, name: str) -> Any:
        state = self.__dict__
        if name in state.get("_features", {}):
            return state["_features"][name]
        if name in state.get("_functions", {}):
            return self._callable(state["_functions"][name])
        body = state.get("original_cls")
        if body is not None and not name.startswith("__") and name in vars(body):
            found = vars(body)[name]
            return found.__func__.__get__(self) if isinstance(found, classmethod) else getattr(body, name)
        features = state.get("_features", {})
        raise AttributeError(
            f"featureset {state.get('_name')} has no feature {name}{meant(name, features)}; "
            f"features: {', '.join(features)}"
        )

    def __repr__(self) -> str:
        return f"Featureset({self._name})"

    def _repr_html_(self) -> str:
        # Notebooks call the method of this name to show an object as HTML.
        metadata = documented(get_metadata(self) or get_metadata(self.original_cls), self)
        return featureset_html(self._name, self.features, self.extractors, metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FeaturesetHandle, (self._name, tuple(self._features)))

    @property
    def features(self) -> list[Feature]:
        """The features, in the order declared."""
        return list(self._features.values())

    def all(self) -> list[Feature]:
        """Return the features, in the order declared."""
        return self.features

    def feature(self, name: str) -> Feature | None:
        """Return a feature by its bare name."""
        return self._features.get(name)

    def fqn(self) -> str:
        """Return the featureset's name."""
        return self._name

    @property
    def extractors(self) -> list[Extractor]:
        """The extractors: expressions, then lookups and aliases, then functions by name."""
        first = [item for item in self._generated if item.extractor_type is ExtractorType.EXPRESSION]
        then = [item for item in self._generated if item.extractor_type is not ExtractorType.EXPRESSION]
        return [*first, *then, *(self._functions[name] for name in sorted(self._functions))]

    def to_spec(self) -> FeaturesetSpec:
        """Return the definition as a value; functions are pickled now, when all names that they use are defined.

        Raises:
            DefinitionError: A function uses something that can't be pickled, or a default isn't of its feature's type.
        """
        metadata = documented(get_metadata(self) or get_metadata(self.original_cls), self)
        owner = metadata.owner or module_owner(self.original_cls.__module__)
        return FeaturesetSpec(
            name=self._name,
            features=tuple(item.to_spec() for item in self._features.values()),
            extractors=tuple(self._extractor_spec(item) for item in self.extractors),
            metadata=replace(metadata, owner=owner),
        )

    def _extractor_spec(self, item: Extractor) -> ExtractorSpec:
        if isinstance(item, FunctionExtractor):
            return self._function_spec(item)
        if not isinstance(item, GeneratedExtractor):
            raise DefinitionTypeError(f"extractor {item.fqn()} is of no known kind: {type(item).__name__}")
        spec, feature = item.spec, self._features[item.outputs[0].partition(".")[2]]
        # The metadata is read now, because `.meta(...)` may have changed it after the extractor was made.
        spec = replace(spec, metadata=feature.metadata)
        if isinstance(spec, AliasExtractor):
            # The default is checked at the commit and not at the definition, because a program may define a wrong
            # default as long as it doesn't commit it.
            default = stored_default(f"feature {feature.fqn()}", feature, feature.data_type)
            spec = replace(spec, default=default)
        return spec

    def _function_spec(self, item: FunctionExtractor) -> PythonExtractor:
        members = {
            name: member.function if isinstance(member, FunctionExtractor) else member
            for name, member in vars(self.original_cls).items()
            if not name.startswith("__") and name not in self._features
        }
        where = f"extractor {item.fqn()}"
        return PythonExtractor(
            name=item.name,
            inputs=item.inputs,
            outputs=item.outputs,
            datasets=item.datasets,
            version=item.version,
            source_code=source_with_includes(item.function),
            pickled=ship(where, item.function, self._name, tuple(self._features), members),
            env=item.env,
            metadata=item.metadata,
        )

    def _inputs(self, item: FunctionExtractor) -> tuple[str, ...]:
        """Return the full names of an extractor's inputs."""
        where = f"extractor {self._name}.{item.name}"
        names = []
        for given in item.given_inputs or ():
            if isinstance(given, str):
                names.append(self._own(where, given, "input"))
            elif isinstance(given, Feature) and given.name:
                names.append(given.fqn())
            else:
                raise DefinitionTypeError(
                    f"{where}: input {kind(given)} is not a feature; list the features themselves"
                )
        return tuple(names)

    def _outputs(self, item: FunctionExtractor) -> tuple[str, ...]:
        """Return the full names of an extractor's outputs."""
        where = f"extractor {self._name}.{item.name}"
        if item.given_outputs is None:
            return tuple(feature.fqn() for feature in self._features.values())
        names = []
        for given in item.given_outputs:
            if isinstance(given, str):
                names.append(self._own(where, given, "output"))
            elif isinstance(given, Feature) and self._features.get(given.name) is given:
                names.append(given.fqn())
            elif isinstance(given, Feature):
                raise DefinitionTypeError(
                    f"{where}: output {given!r} is a feature of another featureset; features of {self._name}: "
                    f"{', '.join(self._features)}"
                )
            else:
                raise DefinitionTypeError(f"{where}: output {kind(given)} is not a feature")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DefinitionError(f"{where}: output {twice} is named twice")
        return tuple(names)

    def _own(self, where: str, name: str, role: str) -> str:
        if name not in self._features:
            raise DefinitionError(
                f"{where}: unknown {role} {name}{meant(name, self._features)}; features of {self._name}: "
                f"{', '.join(self._features)}"
            )
        return f"{self._name}.{name}"

    def _callable(self, item: FunctionExtractor) -> Callable[..., Any]:
        """Return an extractor as a plain function whose results bear full names."""

        @functools.wraps(item.function)
        def call(cls: object, ts: "pd.Series[Any]", *series: "pd.Series[Any]") -> Any:
            if len(series) != len(item.inputs):
                raise DefinitionError(
                    f"extractor {item.fqn()} takes {len(item.inputs)} inputs ({', '.join(item.inputs) or 'none'}), "
                    f"got {len(series)}"
                )
            match item.function(cls, ts, *series):
                case pd.Series() as result:
                    return result if result.name is None else result.rename(f"{self._name}.{result.name}")
                case pd.DataFrame() as result:
                    return result.rename(columns={name: f"{self._name}.{name}" for name in result.columns})
                case result:
                    return result

        return call


if TYPE_CHECKING:

    class Member(Feature):
        """The type of a featureset's attributes for type checkers: any may be a feature, or a function to call."""

        def __call__(self, *args: Any, **named: Any) -> Any:
            """Call an extractor or helper."""

    class FeaturesetClass(Featureset, type):
        """The type that `caraway.integrations.mypy` gives a class below `@featureset`: featureset and class."""


def featureset(cls: type) -> Featureset:
    """Turn an annotated class into a featureset.

    Raises:
        DefinitionError: A feature or extractor is wrong; the message names it and what would be right.
        DefinitionTypeError: A feature or extractor is wrong in a type.
    """
    if not isinstance(cls, type):
        raise DefinitionTypeError(f"@featureset goes onto a class, not {type(cls).__name__} {cls!r}")
    name = cls.__name__
    where = f"featureset {name}"
    _refuse_expectations(where, cls)
    annotations = own_annotations(cls, sys._getframe(1).f_locals)  # noqa: SLF001 (for local names)
    if wrong := [item for item in annotations if item in RESERVED]:
        raise DefinitionError(
            f"{where}: reserved names can't be features: {', '.join(wrong)}; reserved: {', '.join(RESERVED)}"
        )
    comments = {field.name: field.comment for field in fields_text(cls)}
    features: dict[str, Feature] = {}
    for item, annotation in annotations.items():
        value = vars(cls).get(item, None)
        found = feature() if item not in vars(cls) else value
        if not isinstance(found, Feature):
            raise DefinitionTypeError(f"{where}: {item} = {value!r} is not a feature; write {item}: ... = feature(...)")
        if found.name:
            raise DefinitionTypeError(
                f"{where}: {item} is feature {found.fqn()} itself; write {item}: ... = feature({found.fqn()})"
            )
        try:
            take_as_struct(annotation)
            dtype = dtype_of(annotation)
        except (DefinitionError, DefinitionTypeError) as error:
            raise type(error)(f"{where}: feature {item}: {error}") from None
        metadata = found.metadata
        if not metadata.description:
            metadata = replace(metadata, description=comments.get(item, ""))
        found.bind(name, item, dtype, metadata)
        features[item] = found
    generated = [made for item in features.values() if (made := generate(item, features)) is not None]
    _require_one_lookup_a_field(where, generated)
    return Featureset(cls, features, generated)


def _refuse_expectations(where: str, cls: type) -> None:
    marked = [name for name, member in vars(cls).items() if hasattr(_unwrapped(member), EXPECTATIONS_ATTRIBUTE)]
    if len(marked) > 1:
        raise DefinitionError(f"{where}: {', '.join(marked)} are all marked by @expectations; one method can be")
    if marked:
        raise NotImplementedError(f"{where}: {marked[0]}: features have no @expectations; put them on the dataset")


def _unwrapped(member: object) -> object:
    return member.__func__ if isinstance(member, (classmethod, staticmethod)) else member


def _require_one_lookup_a_field(where: str, generated: list[Generated]) -> None:
    names = [item.name for item in generated]
    for item in generated:
        if names.count(item.name) > 1:
            outputs = [other.output for other in generated if other.name == item.name]
            raise DefinitionError(
                f"{where}: {' and '.join(outputs)} look up the same field; let one of them refer to the other"
            )
