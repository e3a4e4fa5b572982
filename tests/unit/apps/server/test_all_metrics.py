"""The metrics of a server: all of them are on their page, and sources and sinks that share a name are put together."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

import caraway
from caraway.apps.server.metrics import SOURCES, set_sinks, set_sources
from caraway.dataplane.sinks.sinks import SinkStatus
from caraway.dataplane.sources.reader import Progress
from caraway.dataplane.sources.sources import SourceStatus
from tests.markdown import DOCS

SOURCE = Path(caraway.__file__).parent
ROW = re.compile(r"^\| `(caraway_\w+)` \| (\w+) \| (.+?) \|", re.MULTILINE)


def exposed() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return type and labels of all metrics of the server's modules, by the name that a page of metrics shows."""
    for file in sorted(SOURCE.rglob("*.py")):
        if "prometheus_client" in file.read_text():
            import_module(".".join(["caraway", *file.relative_to(SOURCE).with_suffix("").parts]))
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for collector in set(REGISTRY._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            families = [(collector._name, str(collector._type), tuple(collector._labelnames))]
        elif describe := getattr(collector, "describe", None):
            families = [(each.name, each.type, tuple(each._labelnames)) for each in describe()]
        else:
            # Python's own metrics.
            continue
        for name, kind, labels in families:
            # Other tests make metrics of their own, in the registry that all share.
            if name.startswith("caraway_") and not name.startswith("caraway_test_"):
                found[f"{name}_total" if kind == "counter" else name] = (kind, labels)
    return found


@pytest.mark.spec(
    *(f"connectors:10:{row}" for row in (1, 3, 5, 7, 8, 9, 10, 11)),
    *(f"featuresets:11:{row}" for row in (1, 3, 6, 7, 8, 9, 10, 11)),
)
def test_the_page_has_every_metric_with_its_type_and_labels_and_no_other() -> None:
    text = (DOCS / "operate" / "metrics.md").read_text()
    shown = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(text)}
    assert shown == exposed()


def status(**changes: object) -> SourceStatus:
    plain: dict[str, object] = {
        "dataset": "Hives",
        "topic": "caraway.Hives.1",
        "source": "[Postgres: pg](table=hives)",
        "system": "pg",
        "state": "reading",
        "owned": True,
        "lag": None,
        "position": {},
        "progress": None,
        "per_second": None,
        "remaining_s": None,
        "rows": 0,
        "read_at": None,
        "polled_at": None,
        "dead_letters": 0,
        "watermark_us": None,
        "newest_us": None,
        "error": "",
    }
    return SourceStatus(**(plain | changes))  # type: ignore[arg-type]


def of_source(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"source_name": "pg", "dataset_name": "Hives", **labels})


def test_sources_of_one_system_and_dataset_are_put_together_and_those_of_other_servers_left_out() -> None:
    SOURCES.clear()
    two = [
        status(
            lag=3,
            polled_at=50.0,
            watermark_us=2_000_000,
            newest_us=5_000_000,
            progress=Progress(done=1, total=4, unit="rows"),
        ),
        status(lag=4, polled_at=40.0, watermark_us=1_000_000, newest_us=9_000_000, error="gone", state="failing"),
        status(owned=False, state="standby", lag=100, polled_at=1.0),
    ]
    set_sources(two)
    metric = "caraway_source_dataset_metrics"
    assert (of_source(metric, metric="lag_records"), of_source(metric, metric="failing")) == (7.0, 1.0)
    assert (of_source(metric, metric="load_done"), of_source(metric, metric="load_total")) == (1.0, 4.0)
    assert of_source(metric, metric="event_timestamp_seconds") == 9.0
    assert of_source("caraway_source_last_success_timestamp") == 40.0
    assert of_source("caraway_source_watermark_timestamp") == 1.0
    assert of_source("caraway_source_open") == 1.0
    SOURCES.clear()
    set_sources([status(state="closed")])
    assert (of_source("caraway_source_open"), of_source(metric, metric="failing")) == (0.0, 0.0)
    # Another server reads it now, which shows its metrics.
    SOURCES.clear()
    set_sources([status(owned=False)])
    for name in ("open", "last_success_timestamp", "watermark_timestamp"):
        assert of_source(f"caraway_source_{name}") is None


def sink_status(*, backlog: int | None, written_at: float | None, error: str = "", owned: bool = True) -> SinkStatus:
    return SinkStatus(
        dataset="Hives",
        sink_id="Hives.1",
        sink="[Redis: r](prefix=hives)",
        target="hives_main_v1",
        system="r",
        state="writing",
        owned=owned,
        guarantee="",
        backlog=backlog,
        offsets={},
        written_at=written_at,
        dead_letters=0,
        error=error,
    )


def test_sinks_of_one_system_and_dataset_are_put_together() -> None:
    def value(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"caraway_sink_{name}", {"sink_name": "r", "dataset_name": "Hives"})

    set_sinks([sink_status(backlog=2, written_at=9.0), sink_status(backlog=5, written_at=7.0, error="full")])
    assert (value("backlog"), value("failing"), value("last_success_timestamp")) == (7.0, 1.0, 7.0)
    set_sinks([sink_status(backlog=None, written_at=None)])
    assert (value("backlog"), value("failing"), value("last_success_timestamp")) == (None, 0.0, None)
    set_sinks([sink_status(backlog=1, written_at=1.0, owned=False)])
    assert (value("backlog"), value("failing")) == (None, None)
