"""Metrics of a server with several processes: readers write theirs into files, and the writer's page shows all."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

# The label that names the process of a metric: "writer", or the number of a reader. A process that is started again
# counts from 0, and Prometheus treats that as the reset of a counter, as at any restart.
LABEL = "worker"


def write_figures(folder: Path, worker: int) -> None:
    """Write the metrics of this process into the file of the reader `worker`."""
    families = [
        {
            "name": family.name,
            "documentation": family.documentation,
            "type": family.type,
            "samples": [(sample.name, sample.labels, sample.value) for sample in family.samples],
        }
        for family in REGISTRY.collect()
    ]
    file = _file(folder, str(worker))
    new = file.with_suffix(".new")
    new.write_bytes(orjson.dumps(families))
    new.replace(file)


class AllFigures(Collector):
    """The metrics of this process, and those in the files of readers."""

    def __init__(self, folder: Path) -> None:
        """Read the files in `folder`."""
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, labelled by process."""
        found = {family.name: _labelled(family, "writer") for family in REGISTRY.collect()}
        for file in sorted(self._folder.glob(_file(self._folder, "*").name)):
            # When the server ends, its supervisor removes the folder, maybe after `glob` has listed the files.
            with suppress(FileNotFoundError):
                for entry in orjson.loads(file.read_bytes()):
                    name = entry["name"]
                    family = found.setdefault(name, Metric(name, entry["documentation"], entry["type"]))
                    worker = file.stem.rpartition("-")[2]
                    family.samples += [
                        Sample(sample, {**labels, LABEL: worker}, value) for sample, labels, value in entry["samples"]
                    ]
        return found.values()


def page(folder: Path) -> bytes:
    """Return the metrics of all processes in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(AllFigures(folder))
    return generate_latest(registry)


def _labelled(family: Metric, worker: str) -> Metric:
    copy = Metric(family.name, family.documentation, family.type)
    copy.samples = [sample._replace(labels={**sample.labels, LABEL: worker}) for sample in family.samples]
    return copy


def _file(folder: Path, worker: str) -> Path:
    return folder / f"figures-{worker}.json"
