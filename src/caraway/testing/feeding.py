"""The writing of rows into the branches of a mock client."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from caraway.compute.expectations.strict import strict_checks
from caraway.compute.reference.changes import SourceChange
from caraway.compute.reference.engine import LocalEngine
from caraway.compute.rows.cdc import ChangeKind, typed_changes
from caraway.compute.rows.records import typed_rows
from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.envs import is_selected
from caraway.graph.sources import Cdc, SourceSpec, distinct_sources
from caraway.graph.specs import DatasetSpec
from caraway.testing.branch import Branch
from caraway.testing.frames import dataset_rows

# `caraway.testing.log` writes to a dataset that has a source only if the branch was committed for this environment, or
# for no environment.
TESTING_ENV = "testing"

Step = Callable[[LocalEngine], None]


def log_webhook(branches: Mapping[str, Branch], webhook: str, endpoint: str, frame: pd.DataFrame) -> None:
    """Write rows to every dataset that has this endpoint; if anything is wrong, to none.

    Raises:
        UnknownEntityError: No dataset has the endpoint.
        InvalidInputError: A column is missing, a value doesn't fit, or a pipeline failed.
    """
    steps: list[tuple[Branch, Step]] = []
    known: set[str] = set()
    for branch in branches.values():
        for dataset in branch.graph.datasets:
            for source in distinct_sources(dataset.sources):
                if isinstance(connector := source.connector, WebhookConnector):
                    known.add(f"{connector.name}/{connector.endpoint}")
                    if (connector.name, connector.endpoint) == (webhook, endpoint):
                        steps.append((branch, _step(dataset, source, frame)))
    if not steps:
        raise UnknownEntityError(
            f"no dataset has a source at endpoint {endpoint!r} of webhook {webhook!r}; endpoints: "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    _take(steps)


def _step(dataset: DatasetSpec, source: SourceSpec, frame: pd.DataFrame) -> Step:
    if source.cdc is Cdc.DEBEZIUM:
        captured = typed_changes(dataset, source, frame)
        _refuse_unexpected(dataset, [change.row for change in captured if change.kind is ChangeKind.INSERT])
        changes = [
            SourceChange(time_us=change.at_us, row=change.row, delete=change.kind is ChangeKind.DELETE)
            for change in captured
        ]
        return lambda engine: engine.apply_changes(dataset.name, changes)
    rows = typed_rows(dataset, source, frame)
    _refuse_unexpected(dataset, rows)
    return lambda engine: engine.append(dataset.name, rows)


def _take(steps: list[tuple[Branch, Step]]) -> None:
    """Run all steps on copies, and keep the copies only if no step failed."""
    engines = {id(branch): (branch, branch.engine.copy()) for branch, _ in steps}
    for branch, step in steps:
        step(engines[id(branch)][1])
    for branch, engine in engines.values():
        branch.engine = engine


def log_dataset(branches: Mapping[str, Branch], current: str, dataset: str, frame: pd.DataFrame) -> None:
    """Write rows directly to a dataset: in all branches that have it, or as output of its pipeline in the current one.

    Raises:
        InvalidInputError: No branch has the dataset, it is for another environment, or the rows don't fit.
    """
    holding = {name: branch for name, branch in branches.items() if dataset in branch.catalog.datasets}
    if not holding:
        raise InvalidInputError(f"log: dataset {dataset} isn't committed; commit it with the mock client first")
    here = holding.get(current)
    if here is not None and here.catalog.datasets[dataset].pipelines:
        rows = dataset_rows(here.catalog.datasets[dataset], frame)
        here.engine.put_derived(dataset, rows)
        return
    targets = [branch for branch in holding.values() if not branch.catalog.datasets[dataset].pipelines]
    reached = [branch for branch in targets if is_selected((TESTING_ENV,), branch.env)]
    if not reached:
        environments = ", ".join(sorted({str(branch.env) for branch in holding.values()}))
        raise InvalidInputError(
            f"log: dataset {dataset} was committed for env {environments}; rows are logged to a dataset itself in env "
            f'"{TESTING_ENV}" only: commit without env, or log to its webhook'
        )
    _take([(branch, _append(branch.catalog.datasets[dataset], frame)) for branch in reached])


def _append(dataset: DatasetSpec, frame: pd.DataFrame) -> Step:
    rows = dataset_rows(dataset, frame)
    _refuse_unexpected(dataset, rows)
    return lambda engine: engine.append(dataset.name, rows)


def _refuse_unexpected(dataset: DatasetSpec, rows: Sequence[Mapping[str, object]]) -> None:
    """Raise `InvalidInputError` if one of the rows isn't as a strict expectation of the dataset has it."""
    checks = strict_checks(dataset)
    if checks is not None:
        checks.refuse(f"dataset {dataset.name}", rows)
