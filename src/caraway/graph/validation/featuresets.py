"""Checks of featuresets: one extractor a feature, inputs that exist and have the right type, no circles."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from caraway.dtypes.types import DataType, ListType, is_optional, optional, strip_optional, type_name
from caraway.dtypes.values import check_stored
from caraway.errors import (
    CommitError,
    CommitTypeError,
    DefinitionError,
    DefinitionTypeError,
    InvalidExprException,
    InvalidInputError,
    meant,
)
from caraway.expr.inference import infer_nullable
from caraway.expr.printer import print_node
from caraway.expr.promotion import promotes
from caraway.graph import specs
from caraway.graph.references import datasets_of, featureset_of, inputs_of, outputs_of
from caraway.graph.validation.scope import CheckedGraph


def features_have_one_extractor(scope: CheckedGraph) -> None:
    """Check that each feature has one extractor at most, and that extractors keep to their own featureset."""
    for featureset in scope.graph.featuresets:
        own = {f"{featureset.name}.{feature.name}" for feature in featureset.features}
        taken: dict[str, str] = {}
        for extractor in featureset.extractors:
            for output in outputs_of(extractor):
                if output not in own:
                    raise CommitTypeError(
                        f"extractor {extractor.name} of {featureset.name} computes {output}, no feature of it; "
                        f"features: {', '.join(sorted(own))}"
                    )
                if output in taken:
                    raise CommitTypeError(
                        f"feature {output} of featureset {featureset.name} has two extractors: {taken[output]} and "
                        f"{extractor.name}; keep one, or give them different env and commit with one of these"
                    )
                taken[output] = extractor.name


def datasets_are_there(scope: CheckedGraph) -> None:
    """Check that the datasets that extractors look up are in the commit and have an index."""
    for where, _, extractor in _extractors(scope):
        for name in datasets_of(extractor):
            if name not in scope.datasets:
                if scope.may_be_elsewhere(name):
                    continue
                raise CommitError(f"{where} needs dataset {name}, {scope.remedy(name)}")
            index = scope.datasets[name].index
            if index is None or not (index.online or index.offline):
                raise CommitError(
                    f"{where} looks dataset {name} up, which has no index; set index=True in its @dataset"
                )


def inputs_are_there(scope: CheckedGraph) -> None:
    """Check that the features that extractors need are in the commit.

    The featureset of an alias's input may be missing, since callers can supply that feature with each query.
    """
    names = {name: {feature.name for feature in f.features} for name, f in scope.featuresets.items()}
    for where, _, extractor in _extractors(scope):
        for full_name in inputs_of(extractor):
            other, _, feature = full_name.partition(".")
            if other not in names:
                if isinstance(extractor, specs.AliasExtractor) or scope.may_be_elsewhere(other):
                    continue
                raise CommitError(f"{where} needs {full_name}, but of featureset {other}, {scope.remedy(other)}")
            if feature not in names[other]:
                known = sorted(names[other])
                raise CommitError(
                    f"{where} needs {full_name}, but {other} has no feature {feature}{meant(feature, known)}; "
                    f"features: {', '.join(known)}"
                )


def generated_extractors_fit(scope: CheckedGraph) -> None:
    """Check that lookups, aliases and expressions have the types of their features."""
    for where, featureset, extractor in _extractors(scope):
        types = {feature.name: feature.dtype for feature in featureset.features}
        match extractor:
            case specs.LookupExtractor():
                if extractor.dataset in scope.datasets:
                    _check_lookup(where, extractor, scope.datasets[extractor.dataset], types)
            case specs.AliasExtractor():
                _check_alias(where, extractor, scope, types)
            case specs.ExpressionExtractor():
                _check_expression(where, extractor, types)
            case _:
                pass


def _check_lookup(
    where: str, extractor: specs.LookupExtractor, dataset: specs.DatasetSpec, types: dict[str, DataType]
) -> None:
    fields = {f.name: f.dtype for f in dataset.fields}
    if extractor.field not in fields:
        raise CommitError(
            f"{where}: dataset {dataset.name} has no field {extractor.field}{meant(extractor.field, fields)}; "
            f"fields: {', '.join(fields)}"
        )
    if len(extractor.inputs) != len(dataset.keys):
        raise CommitError(
            f"{where}: {len(extractor.inputs)} inputs for the keys {', '.join(dataset.keys)} of {dataset.name}"
        )
    found = fields[extractor.field]
    each = optional(found) if extractor.default is None else strip_optional(found)
    wanted = ListType(each) if extractor.element_wise else each
    declared = types[_bare(extractor.output)]
    if declared != wanted:
        raise CommitTypeError(
            f"{where}: field {dataset.name}.{extractor.field} is {type_name(found)}, so feature {extractor.output} "
            f"must be {type_name(wanted)}, not {type_name(declared)}"
        )
    if extractor.element_wise:
        for name in extractor.inputs:
            key = types.get(_bare(name))
            if key is not None and not isinstance(key, ListType):
                raise CommitTypeError(f"{where}: it looks lists of keys up, but {name} is {type_name(key)}")
    _check_default(where, extractor.default, strip_optional(found))


def _check_alias(where: str, extractor: specs.AliasExtractor, scope: CheckedGraph, types: dict[str, DataType]) -> None:
    declared = types[_bare(extractor.output)]
    source = scope.featuresets.get(featureset_of(extractor.input))
    if source is not None:
        found = next(f.dtype for f in source.features if f.name == _bare(extractor.input))
        wanted = found if extractor.default is None else strip_optional(found)
        if declared != wanted or (extractor.default is not None and not is_optional(found)):
            given = "" if extractor.default is None else ", with a default"
            raise CommitTypeError(
                f"{where}: feature {extractor.input} is {type_name(found)}, but {extractor.output}{given}, is "
                f"{type_name(declared)}"
            )
    _check_default(where, extractor.default, declared)


def _check_default(where: str, default: object, dtype: DataType) -> None:
    if default is None:
        return
    try:
        check_stored(default, dtype)
    except InvalidInputError as error:
        raise CommitError(f"{where}: the default {default!r} isn't {type_name(dtype)}: {error}") from None


def _check_expression(where: str, extractor: specs.ExpressionExtractor, types: dict[str, DataType]) -> None:
    declared = types[_bare(extractor.output)]
    try:
        found = infer_nullable(extractor.expr, types)
    except DefinitionTypeError as error:
        raise CommitTypeError(f"{where}: {error}") from error
    except (DefinitionError, InvalidExprException) as error:
        raise CommitError(f"{where}: {error}") from error
    if not promotes(found, declared):
        spelled = "null" if found is None else type_name(found)
        raise CommitTypeError(
            f"{where}: feature {extractor.output} is {type_name(declared)}, but {print_node(extractor.expr)} is "
            f"{spelled}"
        )


def extractors_have_no_cycle(scope: CheckedGraph) -> None:
    """Check that no feature is needed to compute itself, in one featureset or across several."""
    makers = {
        output: (f.name, e.name) for f in scope.graph.featuresets for e in f.extractors for output in outputs_of(e)
    }
    needs = {
        (featureset.name, extractor.name): {makers[name] for name in inputs_of(extractor) if name in makers}
        for _, featureset, extractor in _extractors(scope)
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = " <- ".join(f"{featureset}.{name}" for featureset, name in error.args[1])
        raise CommitError(f"extractors need each other in a circle: {circle}") from None


def _extractors(scope: CheckedGraph) -> Iterator[tuple[str, specs.FeaturesetSpec, specs.Extractor]]:
    for featureset in scope.graph.featuresets:
        for extractor in featureset.extractors:
            yield f"extractor {extractor.name} of featureset {featureset.name}", featureset, extractor


def _bare(full_name: str) -> str:
    return full_name.partition(".")[2]


FEATURESET_CHECKS = (
    features_have_one_extractor,
    datasets_are_there,
    inputs_are_there,
    generated_extractors_fit,
    extractors_have_no_cycle,
)
