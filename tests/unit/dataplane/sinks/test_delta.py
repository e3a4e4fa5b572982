"""Delta tables that sinks write: they equal the dataset, have each batch once, and belong to one sink."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.writer import write_deltalake
from hypothesis import HealthCheck, given, settings

from caraway.dataplane.sinks import delta
from caraway.dataplane.sinks.delta import DeltaWriter
from caraway.graph.connectors import S3Connector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.sources import SinkSpec
from caraway.graph.systems import S3System
from tests.unit.dataplane.sinks.table_contract import *  # noqa: F403 (the tests of the contract)
from tests.unit.dataplane.sinks.table_contract import BATCHES, check_batches, rows_of
from tests.unit.dataplane.sinks.world import plan_of, writing

pytestmark = pytest.mark.spec("connectors:4.2:3")

LAKE = S3Connector(system=S3System(name="lake"), bucket="b", prefix="p", format="delta")
SINK = SinkSpec(connector=LAKE, how="incremental", create=True, every_us=1, renames=(("v", "value"),))


class Tables:
    """A folder in which the tables are, instead of a bucket (`Place`)."""

    overtaken = "can't be written"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def plan(self, *, keyed: bool = True) -> SinkPlan:
        return plan_of(sink=SINK, keyed=keyed)

    def writer(self, plan: SinkPlan, name: str = "sink", product: Any = "caraway") -> DeltaWriter:
        return DeltaWriter(writing(plan, name=name, product=product))

    def _read(self) -> list[dict[str, Any]]:
        return list(DeltaTable(str(self.folder / "p_main_v3")).to_pyarrow_table().to_pylist())

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        return rows_of(self._read(), names)

    def hashes(self, product: str) -> list[str]:
        return [each[f"__{product}_hash__"] for each in self._read()]

    def add_table(self) -> None:
        write_deltalake(str(self.folder / "p_main_v4"), pa.table({"x": [1]}))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    made = Tables(tmp_path)
    monkeypatch.setattr(delta, "address_of", lambda plan: (f"{made.folder}/{plan.target.rpartition('/')[2]}", {}))
    return made


# Each example writes files, so that there are fewer than by default.
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_merges_give_the_table_of_the_changes(
    batches: Sequence[Sequence[tuple[str, int | None]]], place: Tables, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place.folder = tmp_path_factory.mktemp("tables")
    check_batches(place, batches)


def options(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return delta.address_of(plan_of(sink=SINK))[1]


def test_a_store_without_tls_is_allowed_if_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options("http://127.0.0.1:9000", monkeypatch)["AWS_ALLOW_HTTP"] == "true"
    assert "AWS_ALLOW_HTTP" not in options("https://s3.example.com", monkeypatch)
    assert delta.address_of(plan_of(sink=SINK))[0] == "s3://b/p_main_v3"
