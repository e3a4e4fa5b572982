"""`just soak [minutes]`: fresh seeds for as long as asked. Seeds that fail are kept in seeds.txt."""

import logging
import sys
import time
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from tests.parity.checking import check_seeds
from tests.parity.seeds import BATCH, keep
from tests.parity.streaming import machinery

# A session is opened anew after so many batches: Spark keeps some memory for every query that ever ran.
BATCHES = 40


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
                found = check_seeds(engines, seeds, _tell)
                for seed, told in found.items():
                    keep(seed, "found by just soak")
                    _tell(told)
                cases, failed = cases + len(seeds), failed + len(found)
                _tell(f"{(time.monotonic() - start) / 60:.1f} min: {cases} graphs, {failed} differ")
    return failed


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.ERROR)
    sys.exit(1 if soak(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0) else 0)
