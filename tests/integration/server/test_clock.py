"""Windows of a quiet stream close by the clock: in the mock, and in a server with jobs, offline queries, a restart."""

# ruff: noqa: ANN001, ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Hopping, Tumbling, Window
from caraway.expr import col
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs, meta
from caraway.testing import MockClient
from tests.integration.server.server_process import ServerProcess, eventually

STRIDE = timedelta(seconds=2)
hook = Webhook(name="doors")


@meta(owner="a@b.co")
@source(hook.endpoint("knocks"), disorder="1h", cdc="append")
@dataset
class Knocks:
    door: str
    loud: bool
    at: datetime


@meta(owner="a@b.co")
@dataset(index=True)
class Loud:
    door: str = field(key=True)
    ever: int
    last: int
    at: datetime

    @pipeline
    @inputs(Knocks)
    def count(cls, knocks):
        return (
            knocks.filter(col("loud"))
            .groupby("door")
            .aggregate(
                ever=Count(window=Hopping("forever", "2s")), last=Count(window=Tumbling("2s")), closes="processing_time"
            )
        )


@meta(owner="a@b.co")
@dataset(index=True)
class Buckets:
    door: str = field(key=True)
    window: Window = field(key=True)
    knocks: int
    at: datetime

    @pipeline
    @inputs(Knocks)
    def count(cls, knocks):
        loud = knocks.filter(col("loud"))
        return loud.groupby("door", window=Tumbling("2s")).aggregate(knocks=Count(), closes="processing_time")


@meta(owner="a@b.co")
@dataset(index=True)
class Totals:
    door: str = field(key=True)
    total: int
    at: datetime

    @pipeline
    @inputs(Buckets)
    def sums(cls, buckets):
        rows = buckets.changelog(delete="gone").filter(~col("gone"))
        return rows.groupby("door").aggregate(total=Sum(of="knocks", window=Continuous("forever")))


@meta(owner="a@b.co")
@featureset
class Door:
    door: str
    ever: int = F(Loud.ever, default=-1)
    last: int = F(Loud.last, default=-1)


DATASETS = [Knocks, Loud, Buckets, Totals]
DOORS = pd.DataFrame({"door": ["front", "back"]})


def knock(client: Any) -> datetime:
    """Log loud knocks at one door, and quiet ones at the other; return when the window of the last one ends."""
    now = datetime.now(UTC)
    rows = [("front", True, now - STRIDE), ("front", True, now), ("back", False, now)]
    client.log("doors", "knocks", pd.DataFrame(rows, columns=["door", "loud", "at"]))
    past = now.timestamp() % STRIDE.total_seconds()
    return now + STRIDE - timedelta(seconds=past)


def shown(client: Any, *times: datetime) -> list[list[Any]]:
    """Return what a client serves, now or as of some times."""
    answers = []
    for each in (Loud, Totals):
        keys = pd.concat([DOORS] * max(1, len(times)), ignore_index=True)
        asked = {"timestamps": [at for at in times for _ in range(len(DOORS))]} if times else {}
        data, found = client.lookup(each, keys, **asked)
        values = data.drop(columns=["door", "at"]).astype(object).where(found, None)
        answers.append(values.to_numpy().tolist())
    return answers


# Two knocks ever, none in the last window, and the sum of the windows' rows, the empty one among them.
QUIET = [[[2, 0], [None, None]], [[2], [None]]]


def test_the_mock_closes_windows_when_their_time_comes() -> None:
    mock = MockClient()
    mock.commit("doors", datasets=DATASETS)
    end = knock(mock)
    before = shown(mock)
    # The window of the last knock isn't closed while its time lasts.
    assert datetime.now(UTC) >= end or before[1] == [[1], [None]]
    eventually(lambda: shown(mock) == QUIET, seconds=30)
    assert datetime.now(UTC) >= end + STRIDE


@pytest.mark.usefixtures("jobs")
def test_a_server_closes_windows_without_a_further_row(own_server: Callable[..., ServerProcess]) -> None:
    server = own_server(more={"heartbeat_seconds": 0.5})
    with Client(str(server.settings.server.url)) as client:
        client.commit("doors", datasets=DATASETS, featuresets=[Door])
        mock = MockClient()
        mock.commit("doors", datasets=DATASETS)
        end = knock(client)
        eventually(lambda: shown(client) == QUIET, server.said)
        assert datetime.now(UTC) >= end + STRIDE

        # Past times have the values of a mock with the same rows, and of an offline query.
        rows = client.inspect(Knocks).sort_values("at", kind="stable")
        mock.log("doors", "knocks", rows[["door", "loud", "at"]])
        times = [end + number * STRIDE / 2 for number in range(-4, 3)]
        assert shown(client, *times) == shown(mock, *times)
        asked = pd.DataFrame({"Door.door": ["front"] * len(times), "at": times})
        query = client.query_offline([Door.door], [Door.ever, Door.last], "at", asked)["request_id"]
        eventually(lambda: client.track_offline_query(query)["status"] not in {"waiting", "running"}, server.said)
        offline = client.offline_result(query).to_arrow().to_pandas().sort_values("at")
        served = [[-1, -1] if row == [None, None] else row for row in shown(client, *times)[0][::2]]
        assert offline[["Door.ever", "Door.last"]].to_numpy().tolist() == served

        # A late row corrects what was closed.
        late = pd.DataFrame({"door": ["front"], "loud": [True], "at": [end - STRIDE / 2]})
        client.log("doors", "knocks", late)
        eventually(lambda: shown(client)[0][0] == [3, 0] and shown(client)[1][0] == [3], server.said)
    # A server that begins anew has what was closed before its first heartbeat; this one has none.
    server.kill()
    # No heartbeat of the first server came later, so only the second one could close the window of this knock.
    at = datetime.now(UTC)
    again = own_server(more={"heartbeat_seconds": 0})
    with Client(str(again.settings.server.url)) as client:
        eventually(lambda: client.lookup(Loud, DOORS)[1].tolist() == [True, False], again.said)
        assert shown(client)[0] == [[3, 0], [None, None]]
        client.log("doors", "knocks", pd.DataFrame({"door": ["back"], "loud": [True], "at": [at]}))
        client.wait()
        eventually(lambda: datetime.now(UTC) > at + STRIDE)
        assert shown(client)[0] == [[3, 0], [None, None]], "nothing closes the window of the last knock"
