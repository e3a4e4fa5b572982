"""Checks of single datasets: their columns, sources, pipelines, sinks and expectations."""

from collections import Counter

from caraway.errors import CommitError, DefinitionError, meant
from caraway.graph.expectations import (
    EXPECTATION_NAMES,
    argument_fault,
    arguments_of,
    columns_of,
    strict_part,
    unsupported,
)
from caraway.graph.row_conditions import row_condition
from caraway.graph.source_checks import check_sink, check_source
from caraway.graph.sources import Cdc
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import is_terminal
from caraway.graph.validation.scope import CheckedGraph


def datasets_are_sound(scope: CheckedGraph) -> None:
    """Check that a dataset has one timestamp, and an index only if it has keys."""
    for dataset in scope.graph.datasets:
        if sum(f.timestamp for f in dataset.fields) != 1:
            raise CommitError(f"dataset {dataset.name} needs one timestamp")
        if dataset.index is not None and not dataset.keys:
            raise CommitError(f"dataset {dataset.name} is indexed but has no keys")
        for field in dataset.fields:
            if field.erase_key and field.timestamp:
                raise CommitError(f"dataset {dataset.name}: its timestamp {field.name} can't be an erase key")
            # If rows of a computed dataset were erased by a field that is no key, they would come back, because the
            # pipeline computes them again. The personal data come from a source, and erasing the rows of the source
            # also removes all that is computed from them.
            if field.erase_key and not field.key and dataset.pipelines:
                raise CommitError(
                    f"dataset {dataset.name}: erase key {field.name} is no key, and a pipeline computes the dataset; "
                    f"keys: {', '.join(dataset.keys) or 'none'}. Mark the field as erase key in the dataset whose "
                    "source has it; erasing there also removes what is computed from the rows"
                )


def rows_come_from_one_side(scope: CheckedGraph) -> None:
    """Check that a dataset has sources or a pipeline, and that a source's cdc goes with the keys."""
    for dataset in scope.graph.datasets:
        if dataset.sources and dataset.pipelines:
            raise CommitError(
                f"dataset {dataset.name} has source {dataset.sources[0].connector.identifier} and pipeline "
                f"{dataset.pipelines[0].name}; it can have one of both in an environment"
            )
        _check_cdc(dataset)


def _check_cdc(dataset: DatasetSpec) -> None:
    for source in dataset.sources:
        name = source.connector.identifier
        if source.cdc is Cdc.APPEND and dataset.keys:
            raise CommitError(
                f"dataset {dataset.name} is keyed by {', '.join(dataset.keys)}, so its source {name} can't have "
                'cdc="append"; use cdc="upsert"'
            )
        if source.cdc is Cdc.UPSERT and not dataset.keys:
            raise CommitError(
                f'dataset {dataset.name} has no keys, so its source {name} can\'t have cdc="upsert"; use cdc="append"'
            )


def sinks_are_fed(scope: CheckedGraph) -> None:
    """Check that a sink takes what a pipeline computes, each column under a name of its own."""
    for dataset in scope.graph.datasets:
        if dataset.sinks and not dataset.pipelines:
            found = "a source" if dataset.sources else "neither a source nor a pipeline"
            raise CommitError(
                f"dataset {dataset.name} has {found}, so it can't have sink {dataset.sinks[0].connector.identifier}; "
                "only what is computed by a pipeline can go to a sink"
            )
        names = [f.name for f in dataset.fields]
        for sink in dataset.sinks:
            where = f"sink {sink.connector.identifier} of dataset {dataset.name}"
            renames = dict(sink.renames)
            for old in renames:
                if old not in names:
                    hint = meant(old, names)
                    raise CommitError(f"{where}: renames {old}, which is no field{hint}; fields: {', '.join(names)}")
            for new, count in Counter(renames.get(name, name) for name in names).items():
                if count > 1:
                    raise CommitError(f"{where}: two columns would be named {new}; rename one of them otherwise")


def sources_and_sinks_fit(scope: CheckedGraph) -> None:
    """Check that the sources and sinks of a dataset fit it."""
    for dataset in scope.graph.datasets:
        for source in dataset.sources:
            check_source(dataset, source)
        for sink in dataset.sinks:
            check_sink(dataset, sink)


def profiled_rows_exist(scope: CheckedGraph) -> None:
    """Check that a dataset with thresholds of drift has rows that can be profiled."""
    for dataset in scope.graph.datasets:
        if dataset.profiled and any(is_terminal(p.operator) for p in dataset.pipelines):
            raise CommitError(
                f"drift of dataset {dataset.name}: the dataset is an aggregate over continuous windows, whose values "
                "come into being when they are read, so it has no rows to profile. Declare drift of the dataset that "
                "it reads, or of the features that serve its values"
            )


def expectations_are_sound(scope: CheckedGraph) -> None:
    """Check that each expectation is known, can be carried out, and is about columns of its dataset."""
    for dataset in scope.graph.datasets:
        if dataset.expectations is None:
            continue
        where = f"expectations of dataset {dataset.name}"
        if any(is_terminal(p.operator) for p in dataset.pipelines):
            raise CommitError(
                f"{where}: the dataset is an aggregate over continuous windows, whose values come into being when they "
                "are read; nothing can be expected of them"
            )
        if dataset.pipelines and (strict := strict_part(dataset.expectations)) is not None:
            raise CommitError(
                f"{where}: {strict.expectations[0].name} is strict, but the rows are computed by pipeline "
                f"{dataset.pipelines[0].name}, and only rows of sources can be refused. Filter the rows in the "
                "pipeline, expect this of the datasets that it reads, or leave out strict"
            )
        names = [f.name for f in dataset.fields]
        for expectation in dataset.expectations.expectations:
            if expectation.name not in EXPECTATION_NAMES:
                raise CommitError(f"{where}: there is no check {expectation.name}")
            try:
                arguments = arguments_of(expectation)
            except ValueError as error:
                raise CommitError(f"{where}: {expectation.name} has no arguments that can be read: {error}") from None
            for column in columns_of(arguments):
                if column not in names:
                    raise CommitError(
                        f"{where}: {expectation.name}: no column {column}{meant(column, names)}; "
                        f"columns: {', '.join(names)}"
                    )
            if fault := argument_fault(expectation.name, arguments) or unsupported(arguments):
                raise CommitError(f"{where}: {expectation.name}: {fault}")
            if (condition := arguments.get("row_condition")) is not None:
                try:
                    row_condition(condition, {f.name: f.dtype for f in dataset.fields})
                except DefinitionError as error:
                    raise CommitError(f"{where}: {expectation.name}: {error}") from None


DATASET_CHECKS = (datasets_are_sound, rows_come_from_one_side, sources_and_sinks_fit, sinks_are_fed)
