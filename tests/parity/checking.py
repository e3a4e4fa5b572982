"""Some cases, run together and compared; those that differ are made small."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from tests.parity.comparing import Difference, differing, expectations
from tests.parity.graphs import Case, case_of
from tests.parity.shrinking import shrink
from tests.parity.streaming import Machinery, Run
from tests.parity.ties import apart_from_ties

_LABELS = count()


@dataclass(frozen=True)
class Outcome:
    """The results of some cases.

    Attributes:
        differing: The first difference between the engines of each case that has any.
        undefined: How many answers are right only in another order of ties, which nobody defines, by seed.
        empty: Seeds of cases without any other answer.
    """

    differing: Sequence[Difference]
    undefined: Mapping[int, int]
    empty: Sequence[int]


def run_together(machinery: Machinery, cases: Sequence[Case]) -> Outcome:
    """Run cases together and compare the engines."""
    run = Run(machinery, cases, f"r{next(_LABELS)}")
    try:
        run.go()
        return _outcome(run)
    finally:
        run.stop()


def _outcome(run: Run) -> Outcome:
    wanted, failing = expectations(run), [*failed(run), *run.unexpected()]
    found: list[Difference] = []
    undefined: dict[int, int] = {}
    empty: list[int] = []
    for part in run.parts:
        expected = [expected for expected in wanted if expected.part is part]
        judged = apart_from_ties(part, [difference for e in expected for difference in differing(run, e)])
        differences = [*(d for d in failing if d.part is part), *judged.differences]
        if not differences:
            differences = run.unexplained(part, expected)
        # A case whose engines differ anyway is made small without erasures. Answers that depend on the order of ties do
        # so after an erasure, too.
        if not differences and not judged.undefined:
            differences = run.erasures().differing(part, expected)
        found += differences[:1]
        if judged.undefined:
            undefined[part.case.seed] = len(judged.undefined)
        if len(judged.undefined) == sum(e.size for e in expected):
            empty.append(part.case.seed)
    return Outcome(found, undefined, empty)


def failed(run: Run) -> list[Difference]:
    """Return the jobs that failed, as differences of their datasets."""
    return [
        Difference(part, job.dataset, "the job", "runs", f"fails: {run.failures[job.job_id]}")
        for part in run.parts
        for job in part.plan.jobs
        if job.job_id in run.failures
    ]


@dataclass(frozen=True)
class Checked:
    """How many cases were compared, and the smallest difference of each seed that differs."""

    cases: int
    differing: Mapping[int, Difference]


def check_seeds(
    machinery: Machinery,
    seeds: Sequence[int],
    tell: Callable[[str], None],
    keep: Callable[[int], None] = lambda _: None,
) -> Checked:
    """Run the cases of seeds, and make those that differ small, after `keep` has got their seeds."""
    found = run_together(machinery, [case_of(seed) for seed in seeds])
    for seed, answers in found.undefined.items():
        tell(f"seed {seed}: {answers} answers are right in another order of ties of a join of tables")
    for difference in found.differing:
        keep(difference.part.case.seed)
        tell(
            f"seed {difference.part.case.seed} differs: {difference.dataset}, {difference.question}, to be made smaller"
        )
    smallest = {
        difference.part.case.seed: shrink(difference, lambda cases: run_together(machinery, cases).differing, tell)
        for difference in found.differing
    }
    return Checked(len(seeds) - len(found.empty), smallest)
