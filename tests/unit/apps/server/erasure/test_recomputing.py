"""The assets that an erasure downstream retires: all that is computed from a topic, and nothing else."""

from caraway.apps.server.erasure.recomputing import computed_from
from caraway.state.allocation import Asset, AssetState
from caraway.state.blueprints import AssetKind


def asset(name: str, *requires: str) -> Asset:
    kind = AssetKind(name.partition(":")[0])
    return Asset(
        id=name,
        kind=kind,
        content=name,
        generation=1,
        dataset=name.partition(":")[2],
        state=AssetState.READY,
        requires=requires,
    )


# A source's topic `a`, from which a job computes `b`, from which an index computes rows for a job that joins them with
# those of the source `c`.
ASSETS = [
    asset("topic:a"),
    asset("ingest:a", "topic:a"),
    asset("index:a", "topic:a"),
    asset("topic:b"),
    asset("job:b", "topic:a", "topic:b"),
    asset("topic:rows"),
    asset("index:b>rows", "topic:b", "job:b", "topic:rows"),
    asset("topic:c"),
    asset("ingest:c", "topic:c"),
    asset("index:c", "topic:c"),
    asset("topic:d"),
    asset("job:d", "topic:rows", "index:b>rows", "topic:c", "topic:d"),
    asset("index:d", "topic:d", "job:d"),
    asset("index:direct", "topic:c"),
]
FROM_A = {"job:b", "topic:b", "index:b>rows", "topic:rows", "job:d", "topic:d", "index:d"}


def test_what_is_computed_from_a_topic_is_found_over_jobs_and_indexes() -> None:
    assert computed_from({"topic:a"}, ASSETS) == FROM_A | {"index:a"}
    assert computed_from({"topic:a"}, ASSETS, spared={"index:a"}) == FROM_A
    assert computed_from({"topic:unknown"}, ASSETS) == set()


def test_the_topic_of_another_source_stays() -> None:
    assert computed_from({"topic:c"}, ASSETS) == {"index:c", "index:direct", "job:d", "topic:d", "index:d"}
    assert computed_from({"topic:a", "topic:c"}, ASSETS) == FROM_A | {"index:a", "index:c", "index:direct"}
