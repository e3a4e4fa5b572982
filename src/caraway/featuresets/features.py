"""Features, the named and typed values of a featureset."""

from collections.abc import Sequence
from typing import Any

from caraway.datasets.fields import Field
from caraway.dtypes.annotations import annotation_of
from caraway.dtypes.types import DataType, type_name
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.expr.expr import Expr, TypedExpr
from caraway.graph.drift import Drift
from caraway.graph.envs import EnvSelector, selector
from caraway.graph.runtime import FeatureHandle
from caraway.graph.specs import FeatureSpec, Metadata
from caraway.lib.metadata import metadata_of_arguments
from caraway.process.displays import html


class Feature:
    """A feature: `Featureset.feature`.

    In a class body it is the result of `feature(...)`; the featureset names and types it.
    """

    def __init__(self, reference: Any, default: Any, env: tuple[str, ...], version: int) -> None:
        self.reference = reference
        self.default = default
        self.env = env
        self.version = version
        self.metadata = Metadata()
        self.name = ""
        self.featureset_name = ""
        self._data_type: DataType | None = None

    def bind(self, featureset: str, name: str, data_type: DataType, metadata: Metadata) -> None:
        """Set what the class body of the featureset says about the feature."""
        self.featureset_name, self.name, self._data_type, self.metadata = featureset, name, data_type, metadata

    @property
    def data_type(self) -> DataType:
        """Type of the feature."""
        if self._data_type is None:
            raise DefinitionError("a feature has its type only once its featureset is defined")
        return self._data_type

    @property
    def dtype(self) -> Any:
        """The type of the feature as an annotation."""
        return annotation_of(self.data_type)

    def fqn(self) -> str:
        """Return the full name, `Featureset.feature`."""
        return f"{self.featureset_name}.{self.name}"

    @property
    def fqn_(self) -> str:
        """The full name."""
        return self.fqn()

    def desc(self) -> str:
        """Return the description."""
        return self.metadata.description

    def meta(
        self,
        owner: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        *,
        deprecated: bool = False,
        deleted: bool = False,
        drift: Drift | None = None,
    ) -> Any:
        """Attach metadata.

        `drift` has the thresholds from which a change of the feature's values is an alarm (docs/guides/monitoring.md).

        Raises:
            DefinitionError: The owner isn't an email address, or a threshold is negative.
        """
        self.metadata = metadata_of_arguments(
            owner, description, tags, deprecated=deprecated, deleted=deleted, drift=drift
        )
        return self

    def to_spec(self) -> FeatureSpec:
        """Return the feature as a value."""
        return FeatureSpec(name=self.name, dtype=self.data_type, metadata=self.metadata)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.fqn() == other
        return isinstance(other, Feature) and (self is other or (bool(self.name) and self.fqn() == other.fqn()))

    def __hash__(self) -> int:
        return hash(self.fqn())

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.fqn()

    def _repr_html_(self) -> str:
        # Notebooks call the method of this name to show an object as HTML.
        facts = ["feature", "" if self._data_type is None else type_name(self._data_type)]
        about = self.metadata
        return html(self.fqn(), [*facts, about.owner, ", ".join(about.tags), about.description])

    def __reduce__(self) -> tuple[Any, ...]:
        return (FeatureHandle, (self.featureset_name, self.name))


def feature(
    *args: Any,
    default: Any = None,
    version: int | None = None,
    env: EnvSelector = None,
) -> Any:
    """Declare the origin of a feature's value.

    Args:
        args: One reference: a field of a keyed dataset, another feature, or an expression over features of the same
            featureset. Without a reference the value comes from a user's extractor or from the caller.
        default: The value in place of null, for a field or a feature.
        version: Version of the extractor that is made from the reference.
        env: The environments in which this origin is used; all by default.

    Raises:
        DefinitionTypeError: There is more than one reference, or a default without one.
        DefinitionError: There is a default for an expression, or `env` is no selector.
    """
    if len(args) > 1:
        raise DefinitionTypeError(f"feature takes one reference, not {len(args)}")
    reference = args[0] if args else None
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):  # type: ignore[redundant-expr]  # users pass anything
        raise DefinitionTypeError(f"feature: the version is an int, not {version!r}")
    if default is not None:
        if isinstance(reference, (Expr, TypedExpr)):
            raise DefinitionError(f"feature: an expression has no default; use {reference}.fillnull({default!r})")
        if not isinstance(reference, (Field, Feature)):
            raise DefinitionTypeError(f"feature: default={default!r} needs a field of a dataset or another feature")
    return Feature(reference, default, selector(env, "feature"), version or 0)


def is_valid_feature(name: str) -> bool:
    """Return whether a name has the form of a feature's: one dot."""
    return name.count(".") == 1


def is_valid_featureset(name: str) -> bool:
    """Return whether a name has the form of a featureset's: no dot."""
    return "." not in name
