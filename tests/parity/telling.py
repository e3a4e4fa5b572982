"""A difference as text for people: the graph, what arrived, and both answers."""

from collections.abc import Iterable

from caraway.dtypes.types import type_name
from caraway.expr.nodes import Node
from caraway.expr.printer import print_node
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import (
    Aggregate,
    Assign,
    AssignFunction,
    Changelog,
    Dedup,
    Drop,
    DropNull,
    Emit,
    Explode,
    Filter,
    FilterFunction,
    First,
    Input,
    Join,
    Latest,
    Operator,
    Rename,
    Select,
    Transform,
    Union,
)
from caraway.graph.specs import DatasetSpec
from caraway.graph.windows import print_window
from tests.parity.comparing import Difference
from tests.parity.graphs import Case


def told(difference: Difference) -> str:
    """Return all that is needed to see the difference again, as text."""
    case = difference.part.case
    return "\n".join([f"seed {case.seed}:", told_difference(difference), *told_case(case)])


def told_difference(difference: Difference) -> str:
    """Return both answers as text."""
    return "\n".join(
        [
            f"  {difference.dataset} differs, {difference.question}",
            f"    in-process {difference.local}",
            f"    streaming  {difference.streaming}",
        ]
    )


def told_case(case: Case) -> Iterable[str]:
    """Yield lines that describe a graph and the records that arrive at its sources."""
    for spec in case.datasets:
        columns = ", ".join(
            f"{'*' if f.key else ''}{f.name}: {'time' if f.timestamp else type_name(f.dtype)}" for f in spec.fields
        )
        yield f"{spec.name}({columns})"
        yield from _steps(spec)
        for arrival in case.traces.get(spec.name, ()):
            yield f"    #{arrival.number} {'delete' if arrival.delete else 'put   '} {dict(arrival.row)}"


def _steps(spec: DatasetSpec) -> Iterable[str]:
    for pipeline in spec.pipelines:
        yield f"    = {spelled(pipeline.operator)}"


def spelled(operator: Operator) -> str:
    """Spell a tree of operators as a user would write it, nearly."""
    match operator:
        case Input():
            return operator.dataset
        case Union():
            return f"({spelled(operator.left)} + {spelled(operator.right)})"
        case Join():
            pairs = ", ".join(f"{a} = {b}" for a, b in zip(operator.left_on, operator.right_on, strict=True))
            low = "forever" if operator.within_low_us is None else operator.within_low_us
            within = f"within=({low}, {operator.within_high_us}), fields={list(operator.fields)}"
            return f'{spelled(operator.left)}.join({operator.right}, how="{operator.how}", on=({pairs}), {within})'
        case _:
            return f"{spelled(operator.of)}{_step(operator)}"


def _step(operator: Operator) -> str:
    match operator:
        case Filter():
            return f".filter({print_node(operator.predicate)})"
        case Assign():
            columns = [f"{c.name}: {type_name(c.dtype)} = {print_node(c.expr)}" for c in operator.columns]
            return f".assign({'; '.join(columns)})"
        case FilterFunction():
            return f".filter({_function(operator.function, operator.traced)})"
        case AssignFunction():
            told = _function(operator.function, operator.traced)
            return f".assign({operator.column}: {type_name(operator.dtype)} = {told})"
        case Transform():
            return f".transform({_function(operator.function, None)}, columns={dict(operator.columns or ())})"
        case Select() | Drop() | DropNull() | Explode():
            return f".{type(operator).__name__.lower()}({', '.join(operator.columns)})"
        case Rename():
            return f".rename({dict(operator.pairs)})"
        case Dedup():
            return f".dedup({list(operator.by)}, {operator.window and print_window(operator.window)})"
        case First() | Latest():
            return f".groupby({list(operator.keys)}).{type(operator).__name__.lower()}()"
        case Changelog():
            return f".changelog({operator.column}, inserts={operator.marks_inserts})"
        case Aggregate():
            group = f"{list(operator.keys)}" + ("" if operator.window is None else f", {print_window(operator.window)}")
            more = ("" if operator.along is None else f", along={operator.along}") + (
                ", final" if operator.emit is Emit.FINAL else ""
            )
            return f".groupby({group}).aggregate({', '.join(map(_column, operator.aggregates))}{more})"
        case _:
            return f".{operator}"


def _function(function: PythonFunction, traced: Node | None) -> str:
    told = " ".join(" ".join((function.source_code, *function.includes)).split())
    return told if traced is None else f"{told} [traced: {print_node(traced)}]"


def _column(spec: AggregateSpec) -> str:
    window = "" if spec.window is None else f", {print_window(spec.window)}"
    names = ("default", "unique", "dropnull", "dedup", "limit", "p", "half_life_us")
    given = "".join(f", {n}={getattr(spec, n)!r}" for n in names if getattr(spec, n) not in (None, False))
    return f"{spec.into}={spec.function}({spec.of}{window}{given})"
