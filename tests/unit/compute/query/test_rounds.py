"""Tests that steps run after all steps that they read, and steps that run elsewhere as early as possible."""

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.compute.query.model import AliasStep
from caraway.compute.query.rounds import added, read, rounds
from caraway.dtypes.types import INT
from tests.effort import examples


def step(number: int, source: int) -> AliasStep:
    return AliasStep(input=f"A.c{source}", input_dtype=INT, output=f"A.c{number}", dtype=INT, default=None)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[AliasStep], set[int]]:
    """Draw steps in topological order, each reading an earlier one or the input -1, and those that run elsewhere."""
    sources = [draw(st.integers(-1, number - 1)) for number in range(draw(st.integers(0, 12)))]
    steps = [step(number, source) for number, source in enumerate(sources)]
    return steps, draw(st.sets(st.integers(0, max(0, len(steps) - 1)))) & set(range(len(steps)))


@settings(max_examples=examples(200))
@given(plans())
def test_each_step_runs_once_after_what_it_reads_and_elsewhere_without_need_to_wait(
    made: tuple[list[AliasStep], set[int]],
) -> None:
    steps, elsewhere = made
    found = rounds(steps, elsewhere)
    assert sorted(n for r in found for n in (*r.here, *r.elsewhere)) == list(range(len(steps)))
    there = {"A.c-1"}
    depth = {"A.c-1": 0}
    for place, one in enumerate(found):
        for number in one.here:
            assert number not in elsewhere
            assert set(read(steps[number])) <= there
            there |= set(added(steps[number]))
        for number in one.elsewhere:
            assert number in elsewhere
            assert set(read(steps[number])) <= there
        for number in one.elsewhere:
            there |= set(added(steps[number]))
        # The number of a step's round is the number of remote steps on its path.
        for number in sorted((*one.here, *one.elsewhere)):
            depth[f"A.c{number}"] = depth[read(steps[number])[0]] + (number in elsewhere)
            assert place == depth[f"A.c{number}"] - (number in elsewhere)
