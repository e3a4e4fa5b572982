"""Datasets are compared one after the other, with pauses; a process that was started anew compares all of them."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import DELAY
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.graph.drift import Drift
from caraway.graph.specs import Metadata
from caraway.offline.monitoring.alerts.lasting import LastingAlerts
from caraway.offline.monitoring.alerts.webhook import Webhook
from caraway.offline.monitoring.drift.datasets import NAME, OBJECT, RESTS, DatasetDrift, columns_of
from caraway.state.profiles import Found
from tests.unit.offline.monitoring.quality.test_profiling import TYPES, plan

HOUR = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECONDS = 60.0


class Profiles:
    """Profiles of two windows that are the same, or of which the later one has grown; reading them takes time."""

    def __init__(self) -> None:
        self.now, self.takes, self.grown = 0.0, 2.0, False
        self.compared: list[str] = []
        self.found: dict[str, list[Found]] = {}

    def newest(self, check_id: str) -> datetime:
        self.compared.append(check_id)
        self.now += self.takes
        return HOUR

    def window(
        self, _check_id: str, since: datetime, until: datetime, names: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        profile = ColumnProfile(Kind.NUMBER)
        more = 100.0 if self.grown and since <= HOUR < until else 0.0
        profile.add(pa.array([more + number % 50 for number in range(3_000)], pa.float64()))
        return {("price", Kind.NUMBER): profile} if "price" in names else {}

    def references(self, _check_id: str, _names: Collection[str]) -> dict[str, Any]:
        return {}

    def record(self, check_id: str, found: list[Found]) -> None:
        self.found[check_id] = found


def watch(profiles: Any, folder: Path) -> DatasetDrift:
    alerts = LastingAlerts(NAME, OBJECT, ObjectFolder(str(folder)), Webhook(None))
    return DatasetDrift(
        profiles,
        alerts,
        hours=1,
        false_alarms=0.001,
        seconds=SECONDS,
        clock=HOUR.timestamp,
        elapsed=lambda: float(profiles.now),
    )


def test_datasets_are_compared_one_after_the_other_with_pauses(tmp_path: Path) -> None:
    made = plan()
    checks = {
        name: replace(made, dataset=replace(made.dataset, name=name, metadata=metadata))
        for name, metadata in (("a", Metadata(drift=Drift())), ("b", Metadata(drift=Drift())), ("c", Metadata()))
    }
    profiles = Profiles()
    drift = watch(profiles, tmp_path)
    branches = {name: ["main"] for name in checks}

    def look(*changed: str) -> None:
        drift.look(changed, checks, branches)

    # `plan` has the same topic for all; the names stand for the checks here. The last one isn't profiled.
    look()
    look()
    assert len(profiles.compared) == 1
    profiles.now += RESTS * profiles.takes
    look("a", "c")
    assert len(profiles.compared) == 2
    # The first dataset has new rows, but it was compared just now.
    profiles.now = SECONDS - 1
    look()
    assert len(profiles.compared) == 2
    profiles.now = SECONDS
    look()
    assert len(profiles.compared) == 3
    assert not (tmp_path / OBJECT).exists()
    profiles.now, profiles.grown = 3 * SECONDS, True
    look("a")
    assert len(profiles.compared) == 4
    (found,) = {one.column for each in profiles.found.values() for one in each if one.drifted}
    assert found == "price"
    assert b'"field":"price"' in (tmp_path / OBJECT).read_bytes()
    profiles.now += SECONDS
    look()
    assert len(profiles.compared) == 4
    # A process that was started anew knows nothing of this.
    watch(profiles, tmp_path).look((), checks, branches)
    assert len(profiles.compared) == 5


def test_thresholds_of_a_field_go_before_those_of_its_dataset() -> None:
    made = plan()
    fields = [
        replace(item, metadata=Metadata(drift=Drift(mean=1.0))) if item.name == "price" else item
        for item in made.dataset.fields
    ]
    spec = replace(made.dataset, fields=tuple(fields), metadata=Metadata(drift=Drift(mean=2.0, psi=0.4)))
    columns = columns_of(replace(made, dataset=spec))
    assert columns.keys() == {*TYPES, DELAY}
    assert (columns["price"][1].mean, columns["price"][1].psi) == (1.0, 0.4)
    assert (columns[DELAY][1].mean, columns[DELAY][1].ks) == (2.0, 0.1)
