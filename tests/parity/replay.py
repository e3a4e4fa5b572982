"""`python -m tests.parity.replay SEED...`: the cases of some seeds again, told whole."""

import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.parity.checking import check_seeds
from tests.parity.graphs import case_of
from tests.parity.streaming import machinery
from tests.parity.telling import told, told_case


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.ERROR)
    chosen = [int(argument) for argument in sys.argv[1:]]
    for seed in chosen:
        tell("\n".join(told_case(case_of(seed))))
    with TemporaryDirectory() as folder, machinery(Path(folder)) as engines:
        found = check_seeds(engines, chosen, tell).differing
    tell("\n\n".join(map(told, found.values())) or "no difference")
