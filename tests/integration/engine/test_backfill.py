"""A job reads its history from the archive and its topics, and its engine is killed amid each and amid the switch."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from caraway.dataplane.archive.trimming import remove_before
from caraway.graph.operators import JoinKind
from tests.integration.archive.archiving import archive_all
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Broker
from tests.integration.spark.shop import Shop
from tests.timeouts import scaled

# The orders that the archive has, those that topics have when the jobs begin, and those that come later.
ARCHIVED, WAITING, LATER = 16_000, 16_000, 600


def phases(beat: dict[str, Any]) -> set[str]:
    return {job["progress"].get("phase", "") for job in beat["jobs"].values()}


# The test starts four JVMs, which takes long on a busy machine.
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_history_is_read_once_in_spite_of_kills(rig: Rig, broker: Broker) -> None:
    shop = Shop("-backfill")
    orders, prices = model.traffic(seed=5, count=ARCHIVED + WAITING + LATER)
    prices = prices[:200]
    jobs = [shop.doubled(), shop.priced(JoinKind.LEFT)]
    broker.create(shop.orders, shop.prices, *(job.output for job in jobs))
    broker.send(shop.prices, prices)
    broker.send(shop.orders, orders[:ARCHIVED])
    ends = archive_all(broker.bootstrap_servers, rig.folder / "objects", shop.orders, shop.prices)
    # The prices stay on their topic: a job reads them from the archive as well, if it reads that at all.
    remove_before(broker.bootstrap_servers, {shop.orders.name: ends[shop.orders.name]})
    broker.send(shop.orders, orders[ARCHIVED : ARCHIVED + WAITING])
    rig.want(jobs)

    # The kills come while a job reads the archive, while one reads its topics, and when one has switched.
    moments: list[Callable[[dict[str, Any]], bool]] = [
        in_the_middle_of_the_archive,
        # All orders of the topic may be one batch, whose end is hardly ever seen before the job has switched.
        lambda beat: "backfill" in phases(beat),
        lambda beat: "live" in phases(beat),
    ]
    for moment in moments:
        rig.start()
        rig.wait_for(moment)
        rig.process.kill()
        rig.process.wait()

    rig.start()
    rig.wait_for(lambda beat: phases(beat) == {"live"})
    broker.send(shop.orders, orders[ARCHIVED + WAITING :])
    for job in jobs:
        expected = model.expected_of(job, orders, prices)
        assert broker.receive(job.output, expected) == expected, f"{job.job_id}\n{rig.log()}"
    rig.wait_for(lambda beat: [job["progress"].get("lag_records") for job in beat["jobs"].values()] == [0, 0])

    rig.process.send_signal(signal.SIGTERM)
    assert rig.process.wait(scaled(90)) == 0, rig.log()


def in_the_middle_of_the_archive(beat: dict[str, Any]) -> bool:
    """Return whether a job has read a part of what the archive has; the other job may be behind it or ahead."""
    told = [job["progress"] for job in beat["jobs"].values()]
    return any(progress.get("phase") == "archive" and progress.get("batch", -1) >= 1 for progress in told)
