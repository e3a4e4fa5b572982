"""Seeds that failed once: kept beside the tests, replayed by every run."""

from pathlib import Path

KEPT = Path(__file__).with_name("seeds.txt")
#: How many cases run together: so many jobs fit into the memory of one session.
BATCH = 6
#: What CI runs beside those that failed once.
FIXED = range(1, BATCH + 1)


def kept() -> list[int]:
    lines = KEPT.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def keep(seed: int, reason: str) -> None:
    """Write down a seed, once."""
    if seed not in kept():
        with KEPT.open("a") as file:
            file.write(f"{seed}  # {reason}\n")


def batches() -> list[list[int]]:
    """Return what CI runs, those that failed once first."""
    seeds = list(dict.fromkeys([*kept(), *FIXED]))
    return [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
