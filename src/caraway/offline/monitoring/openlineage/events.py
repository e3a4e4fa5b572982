"""Events by the classes of OpenLineage's own client. Only servers with `openlineage.url` import this module."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version

from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    documentation_dataset,
    documentation_job,
    error_message_run,
    job_type_job,
    ownership_dataset,
    ownership_job,
    schema_dataset,
)
from openlineage.client.serde import Serde

from caraway.dtypes.types import DataType, type_name
from caraway.graph.columns import column_origins
from caraway.graph.connectors import Connector
from caraway.graph.references import datasets_of, featureset_of, inputs_of, outputs_of
from caraway.graph.specs import DatasetSpec, Extractor, FeaturesetSpec, Graph, LookupExtractor, Metadata, PipelineSpec
from caraway.graph.trees import datasets_read
from caraway.offline.monitoring.openlineage.runs import Run as KnownRun
from caraway.offline.monitoring.openlineage.runs import RunChange, Turn

INTEGRATION = "CARAWAY"
STREAMING, SERVICE = "STREAMING", "SERVICE"
# An error may quote rows or secrets, so events contain this text in place of the error's.
FAILED = "the job fails; `caraway jobs` shows the error"

# A column from which another one is computed: the name of its dataset in OpenLineage, and its field.
Origin = tuple[str, str]

set_producer(f"urn:caraway:{version('caraway')}")


class Events:
    """Makes events of a deployment, as JSON."""

    def __init__(self, namespace: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Prepare.

        Args:
            namespace: The name of the deployment among others, which all of its datasets and jobs are in.
            clock: Returns the time.
        """
        self._namespace = namespace
        self._clock = clock

    def definitions(self, branch: str, graph: Graph) -> Iterator[bytes]:
        """Yield the definitions of a branch: an event for each source, pipeline, sink and featureset."""
        specs = {spec.name: spec for spec in graph.datasets}
        for spec in graph.datasets:
            for source in spec.sources:
                yield self._source(branch, spec, source.connector)
            for pipeline in spec.pipelines:
                job = self._pipeline(branch, spec, pipeline.name, pipeline.metadata)
                yield self._job_event(job, *self._of_pipeline(branch, spec, pipeline, specs))
            for sink in spec.sinks:
                yield self._sink(branch, spec, sink.connector)
        for featureset in graph.featuresets:
            yield self._featureset(branch, featureset, graph)

    def run(self, change: RunChange, graph: Graph | None) -> bytes:
        """Return the event of a run that has begun or ended.

        Args:
            change: The change.
            graph: The definitions of the branch, from which inputs and outputs are taken; None if it has none any more.
        """
        run = change.run
        facets: dict[str, RunFacet] = {}
        if change.turn is Turn.FAIL:
            facets = {"errorMessage": error_message_run.ErrorMessageRunFacet(FAILED, "PYTHON")}
        spec, pipeline = _found(run, graph)
        inputs: list[InputDataset] = []
        outputs: list[OutputDataset] = []
        if graph is not None and spec is not None and pipeline is not None:
            specs = {one.name: one for one in graph.datasets}
            inputs, outputs = self._of_pipeline(run.branch, spec, pipeline, specs)
        metadata = Metadata() if pipeline is None else pipeline.metadata
        return _encoded(
            RunEvent(
                eventTime=self._now(),
                eventType=RunState[change.turn.value],
                run=Run(run.run_id, facets),
                job=self._pipeline(run.branch, spec or run.dataset, run.pipeline, metadata),
                inputs=inputs,
                outputs=outputs,
            )
        )

    def _job_event(self, job: Job, inputs: list[InputDataset], outputs: list[OutputDataset]) -> bytes:
        return _encoded(JobEvent(eventTime=self._now(), job=job, inputs=inputs, outputs=outputs))

    def _source(self, branch: str, spec: DatasetSpec, connector: Connector) -> bytes:
        job = self._job(f"{branch}.sources.{spec.name}.{connector.identifier}", "SOURCE", STREAMING, spec.metadata)
        return self._job_event(job, [InputDataset(*_external(connector))], [self._output(branch, spec)])

    def _sink(self, branch: str, spec: DatasetSpec, connector: Connector) -> bytes:
        job = self._job(f"{branch}.sinks.{spec.name}.{connector.identifier}", "SINK", STREAMING, spec.metadata)
        return self._job_event(job, [self._input(branch, spec.name)], [OutputDataset(*_external(connector))])

    def _pipeline(self, branch: str, spec: DatasetSpec | str, name: str, metadata: Metadata) -> Job:
        dataset, owner = (spec, "") if isinstance(spec, str) else (spec.name, spec.metadata.owner)
        return self._job(f"{branch}.pipelines.{dataset}.{name}", "PIPELINE", STREAMING, metadata, owner)

    def _of_pipeline(
        self, branch: str, spec: DatasetSpec, pipeline: PipelineSpec, specs: Mapping[str, DatasetSpec]
    ) -> tuple[list[InputDataset], list[OutputDataset]]:
        """Return what a pipeline reads and writes, with the columns that each column is computed from, where known."""
        origins = {
            column: [(_dataset(branch, name), field) for name, field in sorted(found)]
            for column, found in column_origins(pipeline.operator, specs).items()
            if found
        }
        inputs = [self._input(branch, name) for name in datasets_read(pipeline.operator)]
        return inputs, [self._output(branch, spec, origins)]

    def _featureset(self, branch: str, spec: FeaturesetSpec, graph: Graph) -> bytes:
        """Return the event of all extractors of a featureset, which read datasets and features."""
        datasets = dict.fromkeys(name for extractor in spec.extractors for name in datasets_of(extractor))
        others = dict.fromkeys(featureset_of(name) for extractor in spec.extractors for name in inputs_of(extractor))
        known = {one.name for one in graph.featuresets}
        inputs = [self._input(branch, name) for name in datasets]
        inputs += [
            InputDataset(self._namespace, _features(branch, name)) for name in others if name in known - {spec.name}
        ]
        origins: dict[str, list[Origin]] = {}
        for extractor in spec.extractors:
            for name in outputs_of(extractor):
                origins[name.partition(".")[2]] = _origins(branch, extractor)
        types = {feature.name: (feature.dtype, feature.metadata) for feature in spec.features}
        facets = self._facets(spec.metadata, types, origins)
        output = OutputDataset(self._namespace, _features(branch, spec.name), facets=facets)
        job = self._job(f"{branch}.featuresets.{spec.name}", "FEATURESET", SERVICE, spec.metadata)
        return self._job_event(job, inputs, [output])

    def _input(self, branch: str, dataset: str) -> InputDataset:
        return InputDataset(self._namespace, _dataset(branch, dataset))

    def _output(
        self, branch: str, spec: DatasetSpec, origins: Mapping[str, list[Origin]] | None = None
    ) -> OutputDataset:
        types = {field.name: (field.dtype, field.metadata) for field in spec.fields}
        facets = self._facets(spec.metadata, types, origins or {})
        return OutputDataset(self._namespace, _dataset(branch, spec.name), facets=facets)

    def _facets(
        self,
        metadata: Metadata,
        fields: Mapping[str, tuple[DataType, Metadata]],
        origins: Mapping[str, list[Origin]],
    ) -> dict[str, DatasetFacet]:
        facets: dict[str, DatasetFacet] = {
            "schema": schema_dataset.SchemaDatasetFacet(
                [
                    schema_dataset.SchemaDatasetFacetFields(name, type_name(dtype), own.description or None)
                    for name, (dtype, own) in fields.items()
                ]
            )
        }
        if origins:
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
                {name: self._column(found) for name, found in origins.items()}
            )
        if metadata.owner:
            facets["ownership"] = ownership_dataset.OwnershipDatasetFacet([ownership_dataset.Owner(metadata.owner)])
        if metadata.description:
            facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(metadata.description)
        return facets

    def _column(self, origins: list[Origin]) -> column_lineage_dataset.Fields:
        fields = [column_lineage_dataset.InputField(self._namespace, name, field, None) for name, field in origins]
        return column_lineage_dataset.Fields(fields)

    def _job(self, name: str, kind: str, processing: str, metadata: Metadata, owner: str = "") -> Job:
        facets: dict[str, JobFacet] = {"jobType": job_type_job.JobTypeJobFacet(processing, INTEGRATION, kind)}
        if metadata.owner or owner:
            facets["ownership"] = ownership_job.OwnershipJobFacet([ownership_job.Owner(metadata.owner or owner)])
        if metadata.description:
            facets["documentation"] = documentation_job.DocumentationJobFacet(metadata.description)
        return Job(self._namespace, name, facets)

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat().replace("+00:00", "Z")


def _encoded(event: RunEvent | JobEvent) -> bytes:
    return Serde.to_json(event).encode()


def _found(run: KnownRun, graph: Graph | None) -> tuple[DatasetSpec | None, PipelineSpec | None]:
    datasets = () if graph is None else graph.datasets
    spec = next((spec for spec in datasets if spec.name == run.dataset), None)
    pipelines = () if spec is None else spec.pipelines
    return spec, next((pipeline for pipeline in pipelines if pipeline.name == run.pipeline), None)


def _origins(branch: str, extractor: Extractor) -> list[Origin]:
    """Return the columns from which an extractor computes its features."""
    if isinstance(extractor, LookupExtractor):
        return [(_dataset(branch, extractor.dataset), extractor.field)]
    return [(_features(branch, featureset_of(name)), name.partition(".")[2]) for name in inputs_of(extractor)]


def _external(connector: Connector) -> tuple[str, str]:
    """Return the namespace and the name of a thing in an external system, by names that have no secrets."""
    return f"{connector.kind.lower()}://{connector.system_name}", connector.inside


def _dataset(branch: str, name: str) -> str:
    return f"{branch}.datasets.{name}"


def _features(branch: str, featureset: str) -> str:
    return f"{branch}.features.{featureset}"
