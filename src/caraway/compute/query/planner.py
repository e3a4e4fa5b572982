"""The planner of queries: a pure function from wanted and given features to steps over a catalog."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from caraway.compute.query.catalog import Catalog, listed
from caraway.compute.query.model import (
    AliasStep,
    Computed,
    ExpressionStep,
    InputColumn,
    KeyPart,
    LookedUp,
    LookupStep,
    PythonStep,
    QueryPlan,
    Step,
    TypedColumn,
)
from caraway.dtypes.types import DataType, ListType, strip_optional
from caraway.errors import InvalidInputError, UnknownEntityError, UnknownFeatureError, meant
from caraway.graph.references import inputs_of, outputs_of
from caraway.graph.specs import (
    AliasExtractor,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    LookupExtractor,
    PythonExtractor,
)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An extractor that must run; `level` is one more than the greatest level among the extractors that it needs."""

    featureset: FeaturesetSpec
    extractor: Extractor
    level: int


@dataclass(frozen=True, slots=True)
class _Read:
    """The properties that lookups must share to become one read."""

    dataset: str
    inputs: tuple[str, ...]
    each: bool


def plan_query(
    catalog: Catalog, inputs: Sequence[str], outputs: Sequence[str], *, foreign_inputs: bool = False
) -> QueryPlan:
    """Plan a query.

    Supplied features aren't computed, nor are features that only these need. Each extractor runs at most once. Lookups
    of one dataset with one key become one read; expressions that can be evaluated together become one step.

    Args:
        catalog: The graph.
        inputs: Full names of the features that the caller supplies.
        outputs: Full names of features, or names of featuresets, which stand for all of their features.
        foreign_inputs: Accept inputs that aren't in the graph, too, if they are wanted as outputs or belong to
            featuresets that aren't in the graph.

    Raises:
        UnknownFeatureError: A feature doesn't exist.
        UnknownEntityError: A featureset doesn't exist.
        InvalidInputError: A feature can't be computed from the inputs; the text names the deepest one that is missing.
    """
    supplied = tuple(
        InputColumn(
            name=name, dtype=_input_type(catalog, name, known=foreign_inputs and _is_foreign(catalog, name, outputs))
        )
        for name in dict.fromkeys(inputs)
    )
    given = frozenset(inputs)
    wanted = _expand(catalog, outputs, given)
    chosen = _choose(catalog, given, wanted)
    types: dict[str, DataType | None] = {**catalog.features, **{c.name: c.dtype for c in supplied}}
    return QueryPlan(
        inputs=supplied,
        steps=_steps(catalog, chosen, given, types),
        outputs=tuple(TypedColumn(name=name, dtype=types.get(name)) for name in wanted),
    )


def _is_foreign(catalog: Catalog, name: str, outputs: Sequence[str]) -> bool:
    featureset, dot, _ = name.partition(".")
    return bool(dot) and (name in outputs or featureset not in catalog.featuresets)


def _input_type(catalog: Catalog, name: str, *, known: bool) -> DataType | None:
    dtype = catalog.features.get(name)
    if dtype is None and not known and name not in catalog.referenced:
        if name in catalog.featuresets:
            raise InvalidInputError(
                f"inputs: {name} is a featureset; name its features, such as {_example(catalog, name)}"
            )
        raise UnknownFeatureError(f"inputs: {_unknown(catalog, name)}")
    return dtype


def _example(catalog: Catalog, featureset: str) -> str:
    return next((f"{featureset}.{feature.name}" for feature in catalog.featuresets[featureset].features), "none")


def _unknown(catalog: Catalog, name: str) -> str:
    featureset, dot, _ = name.partition(".")
    if featureset not in catalog.featuresets:
        hint = meant(featureset, catalog.featuresets)
        return f"there is no featureset {featureset!r}{hint or '; ' + listed('featuresets', catalog.featuresets)}"
    if not dot:
        return f"{name} is a featureset, not a feature"
    features = [f"{featureset}.{feature.name}" for feature in catalog.featuresets[featureset].features]
    return f"there is no feature {name!r}{meant(name, features)}; {listed('features', features)}"


def _expand(catalog: Catalog, outputs: Sequence[str], supplied: frozenset[str]) -> tuple[str, ...]:
    """Return the wanted features, each once, with featuresets replaced by their features."""
    names: dict[str, None] = {}
    for name in outputs:
        if name in catalog.featuresets:
            names.update(dict.fromkeys(f"{name}.{f.name}" for f in catalog.featuresets[name].features))
        elif name in catalog.features or name in supplied:
            names[name] = None
        else:
            kind = UnknownFeatureError if "." in name else UnknownEntityError
            raise kind(f"outputs: {_unknown(catalog, name)}")
    return tuple(names)


def _choose(catalog: Catalog, supplied: frozenset[str], wanted: Iterable[str]) -> list[_Chosen]:
    """Return the extractors that must run, each after those that it needs."""
    waits: TopologicalSorter[int] = TopologicalSorter()
    found: dict[int, tuple[FeaturesetSpec, Extractor]] = {}
    made_by: dict[str, int] = {}
    # A stack of features that are still to be computed, each with the chain of features that need it, for errors.
    todo: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in reversed(list(wanted))]
    while todo:
        name, chain = todo.pop()
        if name in supplied or name in made_by:
            continue
        owner = catalog.extractors.get(name)
        if owner is None:
            raise _unresolvable(catalog, name, chain)
        number = id(owner[1])
        found[number] = owner
        made_by.update(dict.fromkeys((name, *outputs_of(owner[1])), number))
        todo.extend((needed, (*chain, name)) for needed in reversed(inputs_of(owner[1])))
    for number, (_, extractor) in found.items():
        waits.add(number, *(made_by[name] for name in inputs_of(extractor) if name not in supplied))
    levels: dict[int, int] = {}
    for number in waits.static_order():
        before = (made_by[name] for name in inputs_of(found[number][1]) if name not in supplied)
        levels[number] = 1 + max((levels[maker] for maker in before), default=0)
    return [_Chosen(*found[number], level) for number, level in sorted(levels.items(), key=lambda item: item[1])]


def _unresolvable(catalog: Catalog, name: str, chain: tuple[str, ...]) -> Exception:
    path = f" ({' <- '.join((*chain, name))})" if chain else ""
    if name not in catalog.features:
        return UnknownFeatureError(f"{name}{path} isn't among the inputs, and {_unknown(catalog, name)}")
    return InvalidInputError(
        f"there is no way to compute {name}{path}: it has no extractor and isn't among the inputs; add it to the inputs"
    )


def _steps(
    catalog: Catalog, chosen: Sequence[_Chosen], given: frozenset[str], types: Mapping[str, DataType | None]
) -> tuple[Step, ...]:
    """Return the steps level by level, so that lookups and expressions of one level can be combined."""
    steps: list[Step] = []
    for level in dict.fromkeys(item.level for item in chosen):
        members = [item for item in chosen if item.level == level]
        lookups: dict[_Read, list[LookedUp]] = {}
        expressions: dict[str, list[ExpressionExtractor]] = {}
        for item in members:
            match item.extractor:
                case LookupExtractor() as lookup:
                    feature = LookedUp(
                        column=lookup.output,
                        field=lookup.field,
                        dtype=catalog.features[lookup.output],
                        default=lookup.default,
                    )
                    read = _Read(lookup.dataset, lookup.inputs, lookup.element_wise)
                    lookups.setdefault(read, []).append(feature)
                case ExpressionExtractor() as expression:
                    expressions.setdefault(item.featureset.name, []).append(expression)
                case AliasExtractor() as alias:
                    steps.append(
                        AliasStep(
                            input=alias.input,
                            input_dtype=types.get(alias.input),
                            output=alias.output,
                            dtype=catalog.features[alias.output],
                            default=alias.default,
                        )
                    )
                case PythonExtractor() as function:
                    steps.append(
                        PythonStep(
                            featureset=item.featureset.name,
                            extractor=function.name,
                            inputs=tuple(TypedColumn(name=name, dtype=types.get(name)) for name in function.inputs),
                            outputs=tuple((name, catalog.features[name]) for name in function.outputs),
                            kept=tuple(name for name in function.outputs if name not in given),
                            datasets=function.datasets,
                            pickled=function.pickled,
                        )
                    )
        steps += [_lookup_step(catalog, found, features, types) for found, features in lookups.items()]
        steps += [_expression_step(catalog, together, types) for together in expressions.values()]
    return tuple(steps)


def _lookup_step(
    catalog: Catalog, read: _Read, features: list[LookedUp], types: Mapping[str, DataType | None]
) -> LookupStep:
    dataset = catalog.dataset(read.dataset)
    if dataset.index is None:
        raise InvalidInputError(f"{features[0].column} is looked up in dataset {dataset.name}, which has no index")
    fields = [field for field in dataset.fields if field.key]
    keys = tuple(
        KeyPart(
            column=column,
            dtype=_element(types.get(column)) if read.each else types.get(column),
            key=field.name,
            key_dtype=field.dtype,
        )
        for field, column in zip(fields, read.inputs, strict=True)
    )
    return LookupStep(
        dataset=dataset.name,
        indexed=dataset.index,
        keys=keys,
        features=tuple(features),
        absent=catalog.absent[dataset.name],
        each=read.each,
    )


def _element(dtype: DataType | None) -> DataType | None:
    match None if dtype is None else strip_optional(dtype):
        case ListType(of):
            return of
        case _:
            return None


def _expression_step(
    catalog: Catalog, together: Sequence[ExpressionExtractor], types: Mapping[str, DataType | None]
) -> ExpressionStep:
    inputs: dict[str, tuple[str, DataType]] = {}
    for extractor in together:
        for name in extractor.inputs:
            dtype = types.get(name)
            if dtype is None:
                raise InvalidInputError(f"{extractor.output} is computed from {name}, which the graph doesn't hold")
            inputs[name] = (name.partition(".")[2], dtype)
    return ExpressionStep(
        inputs=tuple((bare, name, dtype) for name, (bare, dtype) in inputs.items()),
        features=tuple(
            Computed(column=extractor.output, dtype=catalog.features[extractor.output], expr=extractor.expr)
            for extractor in together
        ),
    )
