"""Texts for people about the work of a step and the state that it keeps."""

from caraway.dtypes.durations import print_duration
from caraway.expr.printer import print_node
from caraway.graph import operators as ops
from caraway.graph.plan.model import JobPlan
from caraway.graph.plan.slots import is_keyed
from caraway.graph.windows import print_window

# An expression is shown with at most this many characters; a longer one is cut, since the text is an overview.
SHOWN_CHARACTERS = 100


def text_of(operator: ops.Operator) -> str:
    """Return a text about the work of a step."""
    match operator:
        case ops.Input():
            return f"read {operator.dataset}"
        case ops.Filter():
            return f"filter {_cut(print_node(operator.predicate))}"
        case ops.FilterFunction():
            return f"filter {_function(operator.function.name, operator.traced is not None)}"
        case ops.Assign():
            return "assign " + ", ".join(f"{c.name} = {_cut(print_node(c.expr))}" for c in operator.columns)
        case ops.AssignFunction():
            return f"assign {operator.column} = {_function(operator.function.name, operator.traced is not None)}"
        case ops.Transform():
            return f"transform {_function(operator.function.name, traced=False)}"
        case ops.Select() | ops.Drop() | ops.DropNull() | ops.Explode():
            return f"{type(operator).__name__.lower()} {', '.join(operator.columns)}"
        case ops.Rename():
            return "rename " + ", ".join(f"{old} to {new}" for old, new in operator.pairs)
        case ops.Union():
            return "union"
        case ops.Dedup():
            window = "" if operator.window is None else f" in {print_window(operator.window)}"
            return f"dedup by {', '.join(operator.by)}{window}"
        case ops.Join():
            on = ", ".join(f"{left} = {right}" for left, right in zip(operator.left_on, operator.right_on, strict=True))
            return f"{operator.how} join with {operator.right} on {on}"
        case ops.First() | ops.Latest():
            return f"{type(operator).__name__.lower()} of each {', '.join(operator.keys)}"
        case ops.Aggregate():
            window = "" if operator.window is None else f" in {print_window(operator.window)}"
            return f"aggregate by {', '.join(operator.keys)}{window}: {', '.join(a.into for a in operator.aggregates)}"
        case ops.Changelog():
            return f"changelog, {operator.column} tells {'inserts' if operator.marks_inserts else 'deletes'}"


def state_of(operator: ops.Operator, job: JobPlan) -> str:
    """Return a text about the state that a step of a job keeps, and for how long; empty if it keeps none."""
    horizon = print_duration(job.horizon_us)
    match operator:
        case ops.Join():
            return (
                f"left rows of {horizon}; versions of {operator.right} of {horizon}, and the last older one of each key"
            )
        case ops.Dedup():
            return f"rows of {horizon}, and the last older one of each group"
        case ops.Changelog():
            return f"versions of {horizon}, and the last older one of each key"
        case ops.Aggregate() if is_keyed(operator.of, job):
            return f"versions of {horizon}, and the last older one of each key, to take its aggregate input back"
        case ops.First():
            return "the first row of each key, for good"
        case _:
            return ""


def _function(name: str, traced: bool) -> str:  # noqa: FBT001 (one of two words)
    return f"by {name}, {'as an expression' if traced else 'in Python'}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
