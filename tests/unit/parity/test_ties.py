"""Differences that depend on the order of ties are distinguished from true differences beside them."""

from dataclasses import replace
from functools import cache
from typing import Any

from caraway.compute.reference.engine import LocalEngine
from caraway.dataplane.topics.identity import position_id
from caraway.graph.plan.planner import plan_graph
from tests.parity.comparing import Difference, answered, rows_of
from tests.parity.graphs import Case, oracle
from tests.parity.keeping import found
from tests.parity.ties import apart_from_ties
from tests.parity.traffic import Part

S = 1_000_000
TIE = 5 * S


def part_of(case: Case) -> Part:
    ids = {name: {a.number: position_id(a.number, 0) for a in arrived} for name, arrived in case.traces.items()}
    return Part(case, plan_graph(case.graph), ids)


@cache
def tied() -> tuple[Part, LocalEngine]:
    """Two people, `b` before `a`, whose shop comes to a town: what they are of that town begins at one time."""
    part = part_of(found()["ties_of_a_join_of_tables"])
    return part, oracle(part.case, part.arrived())


def asked(at_us: int, **streaming: Any) -> Difference:
    """The difference that there is if a stream answers otherwise in some columns."""
    part, engine = tied()
    spec = next(spec for spec in part.case.derived if spec.name == "Towns")
    question = (("x",), at_us)
    (local,) = answered(spec, [question], engine)
    return Difference(part, "Towns", "", local, {**local, **streaming}, asked=question)


def held(row: tuple[Any, ...], streaming: int) -> Difference:
    """The difference that there is if a stream has a row so often."""
    part, engine = tied()
    spec = next(spec for spec in part.case.derived if spec.name == "Moves")
    return Difference(part, "Moves", "", rows_of(part, spec, engine)[row], streaming, row=row)


def test_the_last_of_a_tie_is_any_of_it_and_nothing_else() -> None:
    part, _ = tied()
    last, never, number = asked(TIE, last=["b"]), asked(TIE, last=["c"]), asked(TIE, number=3)
    before, both = asked(TIE - 1, last=["b"]), asked(TIE, last=["b"], number=3)
    assert last.local["last"] == ["a"]
    judged = apart_from_ties(part, [last, never, number, before, both])
    assert judged.undefined == [last]
    assert judged.differences == [never, number, before, both]


def test_rows_of_another_order_are_as_right_and_those_of_none_are_not() -> None:
    part, engine = tied()
    spec = next(spec for spec in part.case.derived if spec.name == "Moves")
    (kept,) = (row for row in rows_of(part, spec, engine) if row[0] == ("int", TIE))
    other = tuple(("str", "b") if value == ("str", "a") else value for value in kept)
    never = tuple(("str", "c") if value == ("str", "a") else value for value in kept)
    right, wrong = [held(kept, 0), held(other, 1)], [held(kept, 2), held(never, 1)]
    judged = apart_from_ties(part, [*right, *wrong])
    assert judged.undefined == right
    assert judged.differences == wrong


def test_without_ties_nothing_is_undefined() -> None:
    part, _ = tied()
    alone = {name: arrived[:1] for name, arrived in part.case.traces.items()}
    differing = asked(TIE, last=["b"])
    assert apart_from_ties(replace(part, case=replace(part.case, traces=alone)), [differing]).differences == [differing]


def test_a_job_that_fails_differs() -> None:
    part, _ = tied()
    failed = Difference(part, "Towns", "the job", "runs", "fails")
    assert apart_from_ties(part, [failed]).differences == [failed]
