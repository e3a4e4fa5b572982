"""Erased keys behind a real job: it passes over the record and goes on; what it computed is erased by itself."""

# ruff: noqa: ANN201 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, list-item, assignment"

from contextlib import closing
from datetime import datetime
from typing import Any

import httpx2
import pandas as pd

from caraway import dataset, field, meta, pipeline
from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, Sum
from caraway.dtypes import Continuous
from caraway.lib import inputs
from tests.e2e.conftest import World
from tests.tls import TLS

BRANCH = "erasing"
HOTEL = Webhook(name="erasing")


@meta(owner="e2e@example.com")
@source(HOTEL.endpoint("stays"), disorder="1d", cdc="upsert")
@dataset(index=True)
class HotelStays:
    guest: str = field(key=True, erase_key=True)
    room: int = field(key=True)
    nights: int
    at: datetime = field(timestamp=True)


@meta(owner="e2e@example.com")
@dataset(index=True)
class HotelNights:
    guest: str = field(key=True, erase_key=True)
    nights: int
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(HotelStays)
    def add(cls, stays: Dataset):
        return stays.groupby("guest").aggregate(nights=Sum(of="nights", window=Continuous("forever")))


def test_a_job_goes_on_after_keys_of_its_input_were_erased(world: World) -> None:
    raw = httpx2.Client(base_url=f"{world.url}/api/v1", headers=world.headers, verify=TLS)
    with closing(Client(world.url, branch=BRANCH)) as client, raw as http:
        client.init_branch(BRANCH)
        client.commit("hotel", [HotelStays, HotelNights], [])

        def log(*rows: tuple[str, int, int]) -> None:
            frame = pd.DataFrame(rows, columns=["guest", "room", "nights"]).assign(at="2026-01-01T00:00:00Z")
            client.log("erasing", "stays", frame)

        def nights(of: Any = HotelNights, **room: int) -> list[int | None]:
            keys = pd.DataFrame([{"guest": guest, **room} for guest in ("ann", "bob")])
            data: Any
            data, found = client.lookup(of, keys, ["nights"])
            return [int(value) if there else None for value, there in zip(data.tolist(), found.tolist(), strict=True)]

        log(("ann", 1, 3), ("ann", 2, 4), ("bob", 1, 5))
        world.wait_for(lambda: nights() == [7, 5])
        client.erase(HotelStays, pd.DataFrame({"guest": ["ann"]}))
        assert nights(HotelStays, room=1) == [None, 5]

        # The record of it is on the topic before these rows; those of the erased key aren't.
        def recorded() -> bool:
            told = http.get("/dataset/HotelStays/erasures", headers={"X-Caraway-Branch": BRANCH}).json()["erasures"]
            return all(erasure["recorded_at"] for erasure in told)

        world.wait_for(recorded)
        log(("ann", 3, 100), ("bob", 2, 8))
        world.wait_for(lambda: nights() == [7, 13])
        client.erase(HotelNights, pd.DataFrame({"guest": ["ann"]}))
        assert nights() == [None, 13]
        # Later rows that the job writes for the erased key aren't shown either.
        log(("bob", 1, 6))
        world.wait_for(lambda: nights() == [None, 14])
        (job,) = [job for job in http.get("/status").json()["jobs"] if job["id"].startswith("HotelNights.")]
        assert (job["state"], job["error"]) == ("running", "")
        client.delete_branch(BRANCH)
