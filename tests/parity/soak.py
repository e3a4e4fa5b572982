"""`just soak [minutes] [kills]`: fresh seeds for as long as asked, then kills. Failing seeds are kept in seeds.txt."""

import logging
import sys
import time
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from tests.parity.checking import check_seeds
from tests.parity.crash_run import crash_run
from tests.parity.crashes import Victim
from tests.parity.keeping import BATCH, keep, keep_seed
from tests.parity.replay import tell
from tests.parity.streaming import machinery
from tests.parity.telling import told

# A session is opened anew after so many batches: Spark keeps some memory for every query that ever ran.
BATCHES = 40
DEFAULT_MINUTES, DEFAULT_KILLS = 10.0, 30


def soak(minutes: float) -> int:
    """Run fresh seeds; return how many differed."""
    deadline, start = time.monotonic() + 60 * minutes, time.monotonic()
    cases = failed = 0
    while time.monotonic() < deadline:
        with TemporaryDirectory() as folder, machinery(Path(folder)) as engines:
            for _ in range(BATCHES):
                if time.monotonic() >= deadline:
                    break
                seeds = SystemRandom().sample(range(10**6), BATCH)
                # An error of the run itself is to be repeated, too.
                tell(f"seeds {' '.join(map(str, seeds))}")
                checked = check_seeds(engines, seeds, tell, keep=keep_seed)
                for seed, smallest in checked.differing.items():
                    keep(seed, smallest)
                    tell(told(smallest))
                cases, failed = cases + checked.cases, failed + len(checked.differing)
                tell(f"{(time.monotonic() - start) / 60:.1f} min: {cases} graphs, {failed} differ")
    return failed


def crash_cycles(kills: int) -> int:
    """Kill all parts in turn, in a random order; return how much was wrong afterwards."""
    if not kills:
        return 0
    victims = SystemRandom().sample(list(Victim) * (kills // 4 + 1), kills)
    with TemporaryDirectory() as folder:
        report = crash_run(Path(folder), victims, rows=100 * kills, tell=tell)
    for line in (*report.differences, *report.regressed):
        tell(line)
    return len(report.differences) + len(report.regressed)


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.ERROR)
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_MINUTES
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT_KILLS
    sys.exit(1 if soak(minutes) + crash_cycles(kills) else 0)
