"""The extractors that are made from the reference in `feature(...)`: lookups of fields, aliases, expressions."""

import warnings
from collections.abc import Mapping
from typing import Any

from caraway.datasets.dataset import Dataset
from caraway.datasets.fields import Field
from caraway.dtypes.types import DataType, ListType, is_optional, optional, strip_optional, type_name
from caraway.dtypes.values import cast, conforms, is_null
from caraway.errors import CarawayError, DefinitionError, DefinitionTypeError, meant
from caraway.expr.expr import Expr, TypedExpr
from caraway.expr.inference import infer_nullable
from caraway.expr.promotion import promotes
from caraway.expr.references import columns_of
from caraway.featuresets.extractors import Generated
from caraway.featuresets.features import Feature
from caraway.graph.specs import AliasExtractor, ExpressionExtractor, LookupExtractor
from caraway.graph.trees import absent_values


def generate(feature: Feature, siblings: Mapping[str, Feature]) -> Generated | None:
    """Return the extractor of a feature, None without a reference; `siblings` are its featureset's features by name."""
    where = f"feature {feature.fqn()}"
    match feature.reference:
        case None:
            return None
        case Field():
            return _lookup(where, feature, feature.reference, siblings)
        case Feature():
            return _alias(where, feature, feature.reference)
        case TypedExpr():
            raise DefinitionTypeError(f"{where}: an expression is declared by the feature's type; leave astype out")
        case Expr():
            return _expression(where, feature, feature.reference, siblings)
        case _:
            raise DefinitionTypeError(
                f"{where}: {feature.reference!r} is no field of a dataset, no feature and no expression"
            )


def _lookup(where: str, feature: Feature, field: Field, siblings: Mapping[str, Feature]) -> LookupExtractor:
    dataset: Dataset = field.dataset
    spec = dataset.to_spec()
    if spec.index is None or not (spec.index.online or spec.index.offline):
        raise DefinitionError(f"{where}: dataset {spec.name} has no index; set index=True in its @dataset")
    for key in spec.keys:
        if key not in siblings:
            raise DefinitionError(
                f"{where}: to look {field.fqn()} up, featureset {feature.featureset_name} needs a feature "
                f"{key}, the key of {spec.name}"
            )
    element_wise = isinstance(feature.data_type, ListType) and all(
        isinstance(siblings[key].data_type, ListType) for key in spec.keys
    )
    _require_type(where, feature, field, element_wise=element_wise)
    default = stored_default(where, feature, strip_optional(field.data_type))
    own = absent_values(spec).get(field.name)
    if None not in (own, default) and own != default:
        warnings.warn(
            f"{where}: default={feature.default!r} has no effect, since the aggregate {field.fqn()} has a default of "
            f"its own, {own!r}, which also stands for keys without rows; give the aggregate this default, or "
            "default=None if each feature is to have its own",
            stacklevel=5,  # The warning shows the line with the class below @featureset.
        )
    return LookupExtractor(
        name=f"_caraway_lookup_{field.fqn()}",
        dataset=spec.name,
        field=field.name,
        inputs=tuple(siblings[key].fqn() for key in spec.keys),
        output=feature.fqn(),
        default=default,
        element_wise=element_wise,
        version=feature.version,
        env=feature.env,
        metadata=feature.metadata,
    )


def _require_type(where: str, feature: Feature, field: Field, *, element_wise: bool) -> None:
    found = field.data_type
    wanted = optional(found) if feature.default is None else strip_optional(found)
    if element_wise:
        wanted = ListType(wanted)
    if feature.data_type != wanted:
        given = "without a default" if feature.default is None else "with a default"
        keys = " by lists of keys" if element_wise else ""
        raise DefinitionTypeError(
            f"{where} is {type_name(feature.data_type)}, but {field.fqn()} is {type_name(found)}; looked up{keys} "
            f"{given} the feature must be {type_name(wanted)}"
        )


def _alias(where: str, feature: Feature, source: Feature) -> AliasExtractor:
    if feature.default is None:
        if feature.data_type != source.data_type:
            raise DefinitionTypeError(
                f"{where} is {type_name(feature.data_type)}, but feature {source.fqn()} is "
                f"{type_name(source.data_type)}; the types must be equal"
            )
    elif is_optional(feature.data_type):
        raise DefinitionTypeError(
            f"{where} is {type_name(feature.data_type)} with a default, which stands for a null of feature "
            f"{source.fqn()}; declare it "
            f"{type_name(strip_optional(feature.data_type))}, or leave the default out"
        )
    elif source.data_type != optional(feature.data_type):
        raise DefinitionTypeError(
            f"{where} is {type_name(feature.data_type)} with a default, so feature {source.fqn()} must be "
            f"{type_name(optional(feature.data_type))}, but is {type_name(source.data_type)}"
        )
    return AliasExtractor(
        name=f"_caraway_alias_{feature.fqn()}",
        input=source.fqn(),
        output=feature.fqn(),
        default=feature.default,
        version=feature.version,
        env=feature.env,
        metadata=feature.metadata,
    )


def stored_default(where: str, feature: Feature, dtype: DataType) -> Any:
    """Return a feature's default in stored form."""
    if feature.default is None:
        return None
    if not conforms(feature.default, dtype):
        found = "null" if is_null(feature.default) else type(feature.default).__name__
        raise DefinitionError(f"{where}: the default {feature.default!r} is {found}, not {type_name(dtype)}")
    return cast(dtype)(feature.default)


def _expression(where: str, feature: Feature, expr: Expr, siblings: Mapping[str, Feature]) -> ExpressionExtractor:
    columns = columns_of(expr.node)
    for name in columns:
        if name not in siblings:
            raise DefinitionError(
                f"{where}: {expr} refers to {name}, which is no feature of {feature.featureset_name}"
                f"{meant(name, siblings)}; features: {', '.join(siblings)}"
            )
    try:
        found = infer_nullable(expr.node, {name: sibling.data_type for name, sibling in siblings.items()})
    except CarawayError as error:
        # Only the text of the exception is changed before it is raised again, since callers may expect its class.
        error.args = (f"{where}: {error}",)
        raise
    if not promotes(found, feature.data_type):
        spelled = "null" if found is None else type_name(found)
        raise DefinitionTypeError(f"{where} is {type_name(feature.data_type)}, but {expr} is {spelled}")
    return ExpressionExtractor(
        name=f"_caraway_expr_{feature.fqn()}",
        expr=expr.node,
        inputs=tuple(siblings[name].fqn() for name in columns),
        output=feature.fqn(),
        version=feature.version,
        env=feature.env,
        metadata=feature.metadata,
    )
