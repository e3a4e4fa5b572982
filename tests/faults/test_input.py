"""Input that comes in any order and several times: the same as in order and once."""

import random
from dataclasses import replace

import pytest

from tests.faults.conftest import PARTS, Traffic
from tests.integration.engine.rig import Rig
from tests.integration.spark import shop as model
from tests.integration.spark.broker import Sent

STARTED_S = 240.0


def _muddled(sent: list[Sent], rng: random.Random) -> list[Sent]:
    """Return records one to three times each, in any order."""
    several = [record for record in sent for _ in range(rng.randint(1, 3))]
    rng.shuffle(several)
    return several


@pytest.mark.parametrize("seed", [1, 2])
def test_what_comes_twice_and_in_any_order_is_as_if_it_came_once_and_in_order(
    seed: int, rig: Rig, traffic: Traffic
) -> None:
    rng = random.Random(seed)
    named = replace(traffic, orders=model.named(traffic.orders), prices=model.named(traffic.prices))
    muddled = replace(traffic, orders=_muddled(named.orders, rng), prices=_muddled(named.prices, rng))
    assert [o.record_id for o in muddled.orders] != sorted(o.record_id or b"" for o in muddled.orders)
    rig.want(traffic.jobs)
    rig.start()
    rig.wait_until_running(len(traffic.jobs), STARTED_S)
    for part in range(PARTS):
        muddled.send(part)
    named.agree(rig)
    # All of it once more, by a sender that has forgotten that it was through; then something new, which shows that this
    # was read.
    again = replace(muddled, orders=muddled.orders[::-1], prices=muddled.prices[::-1])
    for part in range(PARTS):
        again.send(part)
    late = len(named.orders)
    new = [replace(o, record_id=model.name_of(late + n), ingested_us=late + n) for n, o in enumerate(named.orders[:20])]
    newer = [replace(p, record_id=model.name_of(late + n)) for n, p in enumerate(named.prices[:20])]
    for topic, sent in ((traffic.shop.orders, new), (traffic.shop.prices, newer)):
        traffic.broker.send(topic, sent)
    replace(named, orders=[*named.orders, *new], prices=[*named.prices, *newer]).agree(rig)
