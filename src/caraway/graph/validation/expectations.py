"""Checks of expectations."""

from caraway.errors import CommitError
from caraway.graph.expectations import argument_fault, arguments_of, columns_of, is_known, unsupported
from caraway.graph.trees import is_terminal
from caraway.graph.validation.scope import CheckedGraph


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
        names = [f.name for f in dataset.fields]
        for expectation in dataset.expectations.expectations:
            if not is_known(expectation.name):
                raise CommitError(f"{where}: there is no check {expectation.name}")
            arguments = arguments_of(expectation)
            for column in columns_of(arguments):
                if column not in names:
                    raise CommitError(f"{where}: {expectation.name}: no column {column}; columns: {', '.join(names)}")
            if fault := argument_fault(expectation.name, arguments) or unsupported(arguments):
                raise CommitError(f"{where}: {expectation.name}: {fault}")


EXPECTATION_CHECKS = (expectations_are_sound,)
