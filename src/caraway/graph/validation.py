"""What must hold for a whole graph before it is committed. Client and control run the same checks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from caraway.dtypes.types import strip_optional
from caraway.errors import CommitError, CommitTypeError, DefinitionError, DefinitionTypeError
from caraway.expr.inference import infer_nullable
from caraway.expr.promotion import promotes
from caraway.graph.connectors import identifier
from caraway.graph.schemas import datasets_read, schema_differences, schema_of, schema_of_dataset
from caraway.graph.sources import Cdc
from caraway.graph.specs import (
    AliasExtractor,
    DatasetSpec,
    ExpressionExtractor,
    Extractor,
    FeaturesetSpec,
    Graph,
    LookupExtractor,
    PipelineSpec,
    PythonExtractor,
)


def validate(graph: Graph, *, partial: bool = False) -> None:
    """Check a graph, already filtered by the environment of the commit.

    Args:
        graph: Datasets and featuresets.
        partial: The graph is to be laid over one that isn't known here: what it lacks may be there.

    Raises:
        CommitError: Something doesn't hold; the message names the entities and what would be right.
        CommitTypeError: The same, where the API has a TypeError.
    """
    for check in CHECKS:
        check(graph, partial)


def outputs_of(extractor: Extractor) -> tuple[str, ...]:
    """Return the full names of the features that an extractor computes."""
    return extractor.outputs if isinstance(extractor, PythonExtractor) else (extractor.output,)


def inputs_of(extractor: Extractor) -> tuple[str, ...]:
    """Return the full names of the features that an extractor needs."""
    return (extractor.input,) if isinstance(extractor, AliasExtractor) else extractor.inputs


def _names_are_unique(graph: Graph, _partial: bool) -> None:  # noqa: FBT001 (one signature for all checks)
    for kind, names in (
        ("dataset", [d.name for d in graph.datasets]),
        ("featureset", [f.name for f in graph.featuresets]),
    ):
        if twice := _repeated(names):
            raise CommitError(f"{kind} {twice} is given twice; names are unique in a commit")
    for dataset in graph.datasets:
        if twice := _repeated(f.name for f in dataset.fields):
            raise CommitError(f"dataset {dataset.name} has two fields {twice}")
    for featureset in graph.featuresets:
        if twice := _repeated(f.name for f in featureset.features):
            raise CommitError(f"featureset {featureset.name} has two features {twice}")
        if twice := _repeated(e.name for e in featureset.extractors):
            raise CommitError(f"featureset {featureset.name} has two extractors {twice}")


def _owners_are_known(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    entities: list[tuple[str, DatasetSpec | FeaturesetSpec]] = [
        *(("dataset", d) for d in graph.datasets),
        *(("featureset", f) for f in graph.featuresets),
    ]
    for kind, entity in entities:
        if not entity.metadata.owner:
            raise CommitError(
                f'{kind} {entity.name} has no owner; put @meta(owner="you@example.com") above it, or '
                "__owner__ into its module"
            )


def _datasets_are_sound(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    for dataset in graph.datasets:
        if sum(f.timestamp for f in dataset.fields) != 1:
            raise CommitError(f"dataset {dataset.name} needs one timestamp")
        if dataset.index is not None and not dataset.keys:
            raise CommitError(f"dataset {dataset.name} is indexed but has no keys")


def _rows_come_from_one_side(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    for dataset in graph.datasets:
        if dataset.sources and dataset.pipelines:
            raise CommitError(
                f"dataset {dataset.name} has a source and pipeline {dataset.pipelines[0].name}; it can have "
                "one of both in "
                "an environment"
            )
        for source in dataset.sources:
            if source.cdc is Cdc.APPEND and dataset.keys:
                raise CommitError(
                    f"dataset {dataset.name} is keyed by {', '.join(dataset.keys)}, so its source "
                    f"{identifier(source.connector)} can't have "
                    'cdc="append"; use cdc="upsert"'
                )
            if source.cdc is Cdc.UPSERT and not dataset.keys:
                raise CommitError(
                    f"dataset {dataset.name} has no keys, so its source {identifier(source.connector)} can't have "
                    'cdc="upsert"; use cdc="append"'
                )


def _one_pipeline_runs(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    for dataset in graph.datasets:
        if len(dataset.pipelines) < 2:
            continue
        taken: dict[str, str] = {}
        for pipeline in dataset.pipelines:
            if not pipeline.env:
                raise CommitError(
                    f"dataset {dataset.name} has several pipelines; {pipeline.name} needs an env to be told "
                    "from the others"
                )
            for env in pipeline.env:
                if env in taken:
                    raise CommitError(
                        f'dataset {dataset.name}: pipelines {taken[env]} and {pipeline.name} both run in env "{env}"'
                    )
                taken[env] = pipeline.name
        names = ", ".join(pipeline.name for pipeline in dataset.pipelines)
        raise CommitError(f"dataset {dataset.name} has several pipelines ({names}); commit with the env of one of them")


def _pipelines_fit(graph: Graph, partial: bool) -> None:  # noqa: FBT001
    known = {d.name: d for d in graph.datasets}
    for dataset in graph.datasets:
        for pipeline in dataset.pipelines:
            needed = {*pipeline.inputs, *datasets_read(pipeline.operator)}
            if missing := sorted(needed - known.keys()):
                if partial:
                    continue
                raise CommitError(
                    f"pipeline {dataset.name}.{pipeline.name} needs dataset {', '.join(missing)}, which is "
                    "not in the commit; "
                    "add it"
                )
            _check_pipeline(dataset, pipeline, known)


def _check_pipeline(dataset: DatasetSpec, pipeline: PipelineSpec, known: Mapping[str, DatasetSpec]) -> None:
    where = f"pipeline {dataset.name}.{pipeline.name}"
    try:
        output = schema_of(pipeline.operator, known)
        for name in sorted(datasets_read(pipeline.operator)):
            if name not in pipeline.inputs:
                raise DefinitionError(f"reads {name}, which is not among its inputs")  # noqa: TRY301
            if any(schema_of(p.operator, known).terminal for p in known[name].pipelines):
                raise DefinitionTypeError(f"input {name} is an aggregate over continuous windows")  # noqa: TRY301
    except DefinitionTypeError as error:
        raise CommitTypeError(f"{where}: {error}") from error
    except DefinitionError as error:
        raise CommitError(f"{where}: {error}") from error
    if problems := schema_differences(output, schema_of_dataset(dataset)):
        raise CommitTypeError(
            f"{where}: the output is not what dataset {dataset.name} declares: " + "; ".join(problems)
        )


def _pipelines_have_no_cycle(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    needs = {d.name: {name for p in d.pipelines for name in datasets_read(p.operator)} for d in graph.datasets}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        raise CommitError(f"datasets are computed from each other in a circle: {' <- '.join(error.args[1])}") from None


def _features_have_one_extractor(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    for featureset in graph.featuresets:
        own = {f"{featureset.name}.{feature.name}" for feature in featureset.features}
        taken: dict[str, str] = {}
        for extractor in featureset.extractors:
            for output in outputs_of(extractor):
                if output not in own:
                    raise CommitTypeError(
                        f"extractor {extractor.name} of {featureset.name} computes {output}, no feature of it"
                    )
                if output in taken:
                    raise CommitTypeError(
                        f"feature {output} of featureset {featureset.name} has two extractors: {taken[output]} and "
                        f"{extractor.name}; keep one, or give them different env"
                    )
                taken[output] = extractor.name


def _extractors_find_their_datasets(graph: Graph, partial: bool) -> None:  # noqa: FBT001
    known = {d.name: d for d in graph.datasets}
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            where = f"extractor {extractor.name} of featureset {featureset.name}"
            for name in _datasets_of(extractor):
                if name not in known:
                    if partial:
                        continue
                    raise CommitError(f"{where} needs dataset {name}, which is not in the commit; add it")
                index = known[name].index
                if index is None or not (index.online or index.offline):
                    raise CommitError(
                        f"{where} looks dataset {name} up, which has no index; set index=True in its @dataset"
                    )
            if isinstance(extractor, LookupExtractor) and extractor.dataset in known:
                _check_lookup(where, extractor, known[extractor.dataset])


def _datasets_of(extractor: Extractor) -> tuple[str, ...]:
    match extractor:
        case LookupExtractor():
            return (extractor.dataset,)
        case PythonExtractor():
            return extractor.datasets
        case AliasExtractor() | ExpressionExtractor():
            return ()


def _check_lookup(where: str, extractor: LookupExtractor, dataset: DatasetSpec) -> None:
    if extractor.field not in {f.name for f in dataset.fields}:
        raise CommitError(f"{where}: dataset {dataset.name} has no field {extractor.field}")
    if len(extractor.inputs) != len(dataset.keys):
        raise CommitError(
            f"{where}: {len(extractor.inputs)} inputs for the keys {', '.join(dataset.keys)} of {dataset.name}"
        )


def _extractor_inputs_exist(graph: Graph, partial: bool) -> None:  # noqa: FBT001
    sets = {f.name: {feature.name for feature in f.features} for f in graph.featuresets}
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            # The caller may supply what an alias refers to, so that its featureset need not be there.
            needs_all = not isinstance(extractor, AliasExtractor)
            for name in inputs_of(extractor):
                other, _, feature = name.partition(".")
                if other not in sets and (partial or not needs_all):
                    continue
                if other not in sets:
                    raise CommitError(
                        f"extractor {extractor.name} of featureset {featureset.name} needs {name}, but "
                        f"featureset {other} is not "
                        "in the commit; add it"
                    )
                if feature not in sets[other]:
                    raise CommitError(
                        f"extractor {extractor.name} of featureset {featureset.name} needs {name}, but "
                        f"{other} has no feature "
                        f"{feature}; features: {', '.join(sorted(sets[other]))}"
                    )


def _expressions_fit(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    for featureset in graph.featuresets:
        schema = {feature.name: feature.dtype for feature in featureset.features}
        for extractor in featureset.extractors:
            if not isinstance(extractor, ExpressionExtractor):
                continue
            where = f"extractor {extractor.name} of featureset {featureset.name}"
            declared = schema[extractor.output.partition(".")[2]]
            try:
                found = infer_nullable(extractor.expr, schema)
            except DefinitionError as error:
                raise CommitError(f"{where}: {error}") from error
            if not promotes(found, declared) and not promotes(found, strip_optional(declared)):
                raise CommitTypeError(f"{where}: the expression isn't of the type of {extractor.output}")


def _extractors_have_no_cycle(graph: Graph, _partial: bool) -> None:  # noqa: FBT001
    maker = {out: e.name for f in graph.featuresets for e in f.extractors for out in outputs_of(e)}
    needs: dict[str, set[str]] = {}
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            found = needs.setdefault(f"{featureset.name}/{extractor.name}", set())
            for name in inputs_of(extractor):
                if name in maker:
                    found.add(f"{name.partition('.')[0]}/{maker[name]}")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        raise CommitError(f"extractors need each other in a circle: {' <- '.join(error.args[1])}") from None


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


Check = Callable[[Graph, bool], None]

CHECKS: tuple[Check, ...] = (
    _names_are_unique,
    _owners_are_known,
    _datasets_are_sound,
    _rows_come_from_one_side,
    _one_pipeline_runs,
    _pipelines_have_no_cycle,
    _pipelines_fit,
    _features_have_one_extractor,
    _extractors_find_their_datasets,
    _extractor_inputs_exist,
    _expressions_fit,
    _extractors_have_no_cycle,
)
