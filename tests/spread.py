"""The distribution of long tests to processes: the groups that stay together, and their order (docs/inside/ci.md).

Each process has a broker, a Postgres and a Spark session of its own, made when the first test needs one. Files
that share more than these form a group; any other file is a group by itself. Groups are begun in the order of
`LONGEST_FIRST`, so that no process has much left to do when the others have ended; groups that aren't listed there come
last.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from _pytest.nodeid import coerce_node_id
from xdist.scheduler import LoadScopeScheduling

from tests.effort import PROFILE

TESTS = Path(__file__).parent
#: A folder whose tests are many and short, and are dealt out one by one.
SHORT = "unit"

#: Files and folders that form a group, by its name.
TOGETHER: dict[str, tuple[str, ...]] = {
    # The stack takes half a minute to start.
    "e2e": ("e2e",),
    # A session of Spark takes half a minute of a processor before its first job has written something. In `just full`
    # two processes share these tests, which take much longer there.
    **({"spark": ("integration/spark", "parity/test_parity")} if PROFILE == "ci" else {}),
    # The tests of these files use one server with tokens.
    "guarded": (
        "integration/server/test_access",
        "integration/server/test_feast_client",
        "integration/server/test_generated_client",
        "integration/server/test_mcp",
    ),
}

LONGEST_FIRST = (
    # Only `just full` runs most of these.
    "integration/engine/test_sharing",
    "integration/engine/test_many_jobs",
    "integration/control/test_simulation",
    "integration/engine/test_backfill",
    "integration/engine/test_cluster",
    "integration/index/test_many_traces",
    "integration/spark/test_gateway",
    "integration/console/test_killed_engine",
    "integration/console/test_axe",
    "integration/sources/test_hudi",
    "integration/server/test_lake_kills",
    # In the order of the time that they took in `just test`.
    "spark",
    "e2e",
    "integration/installed/test_wheel",
    "integration/server/test_workers",
    "integration/server/test_partitions",
    "integration/spark/test_java",
    "integration/spark/test_markers",
    "integration/server/test_surface",
    "guarded",
    "integration/stack/test_commands",
    "integration/skew/test_watch",
    "integration/skew/test_process",
    "integration/server/test_erase",
    "integration/server/test_branches",
    "integration/server/test_fuzz",
    "integration/spark/test_joins",
    "integration/editors/test_checkers",
    "integration/stack/test_supervision",
    "integration/control/test_steps",
    "integration/server/test_repeats",
    "integration/spark/test_restarts",
    "integration/engine/test_slots",
)


class Groups(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Deals out groups. (`--dist loadgroup` of xdist 3.8 has no effect with pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def in_order(items: list[pytest.Item]) -> None:
    """Put groups in order; within a group all stays as it is."""
    ranks = {group: rank for rank, group in enumerate(LONGEST_FIRST, start=1)}

    def rank(item: pytest.Item) -> tuple[int, str]:
        group = group_of(item.path)
        return (0, "") if group is None else (ranks.get(group, len(ranks) + 1), group)

    items.sort(key=rank)


def name_apart(items: list[pytest.Item]) -> None:
    """Make the id of each test unique: xdist runs only one of several tests with the same id.

    Schemathesis makes an item for each operation of a document, with the operation in its name, but not in its id.
    """
    times = Counter(item.nodeid for item in items)
    for item in items:
        if times[item.nodeid] > 1 and item.parent is not None:
            # There is no public way.
            item._id = coerce_node_id(f"{item.parent.nodeid}::{item.name}")
    if twice := [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]:
        raise pytest.UsageError(f"several tests have the same id, of which only one would run: {twice}")


def scope_of(nodeid: str) -> str:
    """Return the group with which a test is dealt out, or the test's own id if it has none."""
    return group_of(TESTS.parent / nodeid.partition("::")[0]) or nodeid


@cache
def group_of(path: Path) -> str | None:
    """Return the group of a file; None if its tests are dealt out one by one."""
    if not path.is_relative_to(TESTS) or path.is_relative_to(TESTS / SHORT):
        return None
    place = path.relative_to(TESTS).with_suffix("")
    named = (group for group, places in TOGETHER.items() if any(place.is_relative_to(other) for other in places))
    return next(named, str(place))
