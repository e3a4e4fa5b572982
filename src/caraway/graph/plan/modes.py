"""The mode in which a job runs: real-time, unless one of its steps needs Python, which real-time mode can't run."""

from collections.abc import Iterator

from caraway.expr.engines import needs_python
from caraway.graph.operators import Assign, AssignFunction, Filter, FilterFunction, Operator, Transform
from caraway.graph.plan.model import JobMode
from caraway.graph.trees import parents

REAL_TIME_REASON = "all of its steps are expressions or operators that run row by row"


def mode_of(operator: Operator) -> tuple[JobMode, str]:
    """Return the mode of a job and the reason for it; for micro-batch mode it lists the steps that need Python."""
    reasons = tuple(dict.fromkeys(_reasons(operator)))
    return (JobMode.MICRO_BATCH, "; ".join(reasons)) if reasons else (JobMode.REAL_TIME, REAL_TIME_REASON)


def _reasons(operator: Operator) -> Iterator[str]:
    for parent in parents(operator):
        yield from _reasons(parent)
    match operator:
        case Filter():
            if (reason := needs_python(operator.predicate)) is not None:
                yield f"filter: {reason}"
        case Assign():
            for column in operator.columns:
                if (reason := needs_python(column.expr)) is not None:
                    yield f"assign: column {column.name}: {reason}"
        case FilterFunction() if operator.traced is None:
            yield f"filter by the Python function {operator.function.name}"
        case AssignFunction() if operator.traced is None:
            yield f"assign: column {operator.column} is made by the Python function {operator.function.name}"
        case Transform():
            yield f"transform by the Python function {operator.function.name}"
        case _:
            pass
