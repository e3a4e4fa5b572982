"""Some cases, run together and compared; what differs is made small."""

from collections.abc import Callable, Sequence
from itertools import count

from tests.parity.comparing import Difference, differences
from tests.parity.graphs import Case, case_of
from tests.parity.shrinking import shrink
from tests.parity.streaming import Machinery, Run

_LABELS = count()


def run_together(machinery: Machinery, cases: Sequence[Case]) -> list[Difference]:
    """Run cases together and return where the engines differ: the first difference of each case."""
    run = Run(machinery, cases, f"r{next(_LABELS)}")
    try:
        run.go()
        found = [*failed(run), *differences(run)]
    finally:
        run.stop()
    return list({id(difference.part): difference for difference in reversed(found)}.values())


def failed(run: Run) -> list[Difference]:
    """Return the jobs that failed, as differences of their datasets."""
    return [
        Difference(part, job.dataset, "the job", "runs", f"fails: {run.failures[job.job_id]}")
        for part in run.parts
        for job in part.plan.jobs
        if job.job_id in run.failures
    ]


def check_seeds(machinery: Machinery, seeds: Sequence[int], tell: Callable[[str], None]) -> dict[int, Difference]:
    """Run the cases of seeds; return for each one that differs the smallest difference that was found."""
    return {
        difference.part.case.seed: shrink(difference, lambda cases: run_together(machinery, cases), tell)
        for difference in run_together(machinery, [case_of(seed) for seed in seeds])
    }
