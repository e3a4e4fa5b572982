"""Failures of the past, kept beside the tests: seeds, and the small cases to which they were reduced.

A seed makes another case as soon as the generator changes, or an operator more is streamed; a case in a file stays.
"""

import base64
from pathlib import Path

import msgspec

from caraway.graph.wire.graphs import CommitRequest, decode_commit, encode_commit
from tests.effort import PROFILE, examples
from tests.parity.comparing import Difference
from tests.parity.graphs import Case
from tests.parity.telling import told
from tests.parity.traces import Arrival

HERE = Path(__file__).parent
SEEDS = HERE / "seeds.txt"
FOUND = HERE / "found"

#: How many cases run together: so many jobs fit into the memory of one session.
BATCH = 6
#: The seeds that CI runs, beside the last ones that failed.
FIXED = tuple(range(1, BATCH + 1))
LAST = 2


class Kept(msgspec.Struct, frozen=True):
    """A case in a file: the lines that describe it, for people; the graph and all that arrives, for machines."""

    seed: int
    told: list[str]
    graph: str
    traces: str


def keep_seed(seed: int) -> None:
    """Write a seed that failed, at once: the reduction of its case takes minutes, and may fail itself."""
    if seed not in seeds():
        with SEEDS.open("a") as file:
            file.write(f"{seed}\n")


def keep(seed: int, smallest: Difference) -> None:
    """Write a seed, and the smallest case to which it was reduced."""
    keep_seed(seed)
    case = smallest.part.case
    graph = encode_commit(CommitRequest(message="", graph=case.graph))
    kept = Kept(seed, told(smallest).splitlines(), _text(graph), _text(msgspec.msgpack.encode(case.traces)))
    FOUND.mkdir(exist_ok=True)
    (FOUND / f"{seed}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def found() -> dict[str, Case]:
    """Return the cases of the files, by their names."""
    return {path.stem: _read(path) for path in sorted(FOUND.glob("*.json"))}


def seeds() -> list[int]:
    """Return all seeds that failed once."""
    return [int(line) for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]


def seeds_of_ci() -> list[int]:
    """Return a batch, or two in `just test`: the last seeds that failed, and fixed ones."""
    return list(dict.fromkeys([*seeds()[-LAST:], *FIXED]))[: 2 if PROFILE == "ci" else examples(BATCH)]


def _read(path: Path) -> Case:
    kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    traces = msgspec.msgpack.decode(base64.b64decode(kept.traces), type=dict[str, tuple[Arrival, ...]])
    return Case(kept.seed, decode_commit(base64.b64decode(kept.graph)).graph.datasets, traces)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
