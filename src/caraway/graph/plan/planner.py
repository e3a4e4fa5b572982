"""The step from a graph to its physical plan: a pure function.

A topic, job or index is named after its dataset and a hash of the dataset's definition and all definitions before it.
The same definition therefore finds its data again, and a changed one starts with new data beside the old.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import TopologicalSorter

from caraway.dtypes.durations import US_PER_SECOND
from caraway.dtypes.types import DATETIME, DataType, type_name
from caraway.errors import CommitError
from caraway.graph.expectations import NO_EXPECTATIONS
from caraway.graph.fingerprints import dataset_fingerprint, pipeline_fingerprint, sink_fingerprint
from caraway.graph.operators import Aggregate, Operator
from caraway.graph.plan import model
from caraway.graph.plan.longest_window import longest_window
from caraway.graph.plan.lowering import lowered
from caraway.graph.plan.modes import mode_of
from caraway.graph.plan.pruning import pruned
from caraway.graph.plan.revising import revises
from caraway.graph.schemas import schema_of
from caraway.graph.source_checks import check_systems
from caraway.graph.sources import SinkSpec, SourceSpec, distinct_sources
from caraway.graph.specs import DatasetSpec, Graph, PipelineSpec
from caraway.graph.trees import datasets_read
from caraway.graph.windows import ContinuousWindow, HoppingWindow, SessionWindow

# The id of a job whose operator tree was pruned ends with this many hexadecimal digits of a hash of the pruned tree.
# Few are enough, since they only distinguish how different releases prune the same tree.
PRUNED_DIGITS = 6
# A dataset's name is cut to this many characters in the name of its topic. Kafka allows 249 characters of
# [a-zA-Z0-9._-]; the prefix and the hash take about 25.
MAX_DATASET_NAME = 200


@dataclass(frozen=True)
class _Planned:
    """The plan of a dataset, as far as the plans of datasets that are computed from it need it.

    The dataset's job writes `topic`. For an aggregate, `rows` is the topic of its rows, which an index writes if a job
    reads them; these rows may be later than the aggregate inputs by `reach_us`.
    """

    spec: DatasetSpec
    content: bytes
    topic: model.TopicPlan
    horizon_us: int
    rows: model.TopicPlan | None = None
    reach_us: int = 0

    @property
    def operator(self) -> Operator | None:
        """The tree of its pipeline, if it has one."""
        pipeline = _pipeline(self.spec)
        return None if pipeline is None else pipeline.operator

    @property
    def read(self) -> model.TopicPlan:
        """The topic that jobs read."""
        return self.rows or self.topic

    @cached_property
    def label(self) -> str:
        """The name with the content hash: the name of the dataset's job, and the end of its topic's name."""
        return f"{_safe(self.spec.name)}.{self.content.hex()[: model.NAME_DIGITS]}"


def plan_graph(graph: Graph) -> model.GraphPlan:
    """Return all that must run for `graph`, which has to be valid (`caraway.graph.validation`)."""
    check_systems(graph)
    _check_targets(graph)
    declared = {spec.name: spec for spec in graph.datasets}
    specs = {made.name: made for spec in graph.datasets for made in lowered(spec, declared)}
    planned: dict[str, _Planned] = {}
    for name in _order(specs):
        planned[name] = _plan_dataset(specs[name], specs, planned)
    in_order = [planned[name] for name in specs]
    read = {name for p in in_order if p.operator is not None for name in datasets_read(p.operator)}
    emitted = [(p, p.rows) for p in in_order if p.rows is not None and (p.spec.name in read or _sends(p.spec))]
    return model.GraphPlan(
        topics=(*(p.topic for p in in_order), *(rows for _, rows in emitted)),
        jobs=tuple(_job(p, pipeline, planned, specs) for p in in_order if (pipeline := _pipeline(p.spec)) is not None),
        indexes=(
            *(_index(p) for p in in_order if _is_indexed(p.spec)),
            *(_emitting(p, rows) for p, rows in emitted),
        ),
        ingests=tuple(_ingest(p, source, graph) for p in in_order for source in distinct_sources(p.spec.sources)),
        sinks=tuple(_sink(p, sink) for p in in_order for sink in dict.fromkeys(p.spec.sinks)),
        checks=tuple(_check(p) for p in in_order if _is_checked(p.spec)),
    )


def _sends(spec: DatasetSpec) -> bool:
    """Return whether somebody besides jobs reads the rows of an aggregate, so that an index has to write them."""
    return bool(spec.sinks) or _is_checked(spec)


def _is_checked(spec: DatasetSpec) -> bool:
    """Return whether somebody looks at each row of a dataset: it has expectations, or is profiled."""
    return spec.profiled or (spec.expectations is not None and bool(spec.expectations.expectations))


def _check(planned: _Planned) -> model.CheckPlan:
    """Return how the rows of a dataset are checked."""
    return model.CheckPlan(
        dataset=planned.spec,
        suite=planned.spec.expectations or NO_EXPECTATIONS,
        topic=planned.read,
        schema=planned.read.schema,
        repeats=planned.operator is not None,
        erased_on=planned.topic.name,
    )


def _check_targets(graph: Graph) -> None:
    """Raise `CommitError` if two sinks would create the same thing, such as a table, and replace each other's rows."""
    targets: dict[object, str] = {}
    for spec in graph.datasets:
        for sink in dict.fromkeys(spec.sinks):
            if not sink.create:
                continue
            connector = sink.connector
            target = (connector.kind, connector.system_name, connector.target(f"_v{spec.version}"))
            where = f"dataset {spec.name}, sink {connector.identifier}"
            if target in targets:
                raise CommitError(f"{where}: {targets[target]} writes the same table; give one of them another name")
            targets[target] = where


def _sink(planned: _Planned, sink: SinkSpec) -> model.SinkPlan:
    """Return how changes are written to a sink. Raises `CommitError` if the server can't write such a sink."""
    if reason := sink.connector.unwritable():
        raise CommitError(f"dataset {planned.spec.name}, sink {sink.connector.identifier}: {reason}")
    return model.SinkPlan(
        sink_id=f"{planned.label}.{sink_fingerprint(sink).hex()[: model.NAME_DIGITS]}",
        sink=sink,
        dataset=planned.spec,
        topic=planned.read,
        fields=_fields(planned.spec),
    )


def _ingest(planned: _Planned, source: SourceSpec, graph: Graph) -> model.IngestPlan:
    """Return how rows of a source are ingested. Raises `CommitError` if the server can't read such a source."""
    where = f"dataset {planned.spec.name}, source {source.connector.identifier}"
    connector = source.connector
    if source.cdc not in connector.cdc:
        raise CommitError(
            f'{where}: {connector.kind} can\'t be read with cdc="{source.cdc}"; possible: '
            f"{', '.join(sorted(connector.cdc))}"
        )
    if reason := connector.unreadable():
        raise CommitError(f"{where}: {reason}")
    return model.IngestPlan(
        source=source,
        dataset=planned.spec,
        topic=planned.topic,
        fields=_fields(planned.spec),
        longest_window_us=None if planned.spec.index else longest_window(planned.spec.name, graph),
    )


def _order(specs: Mapping[str, DatasetSpec]) -> list[str]:
    """Return the datasets in an order in which each comes after its inputs."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for spec in specs.values():
        pipeline = _pipeline(spec)
        sorter.add(spec.name, *(datasets_read(pipeline.operator) if pipeline else ()))
    return list(sorter.static_order())


def _pipeline(spec: DatasetSpec) -> PipelineSpec | None:
    """Return the active pipeline of a dataset: a commit carries only the one that its environment selects."""
    return spec.pipelines[0] if spec.pipelines else None


def _plan_dataset(
    spec: DatasetSpec,
    specs: Mapping[str, DatasetSpec],
    planned: Mapping[str, _Planned],
) -> _Planned:
    pipeline = _pipeline(spec)
    if pipeline is None:
        content = _digest(dataset_fingerprint(spec))
        kind = model.TopicKind.VERSIONS if spec.keys else model.TopicKind.EVENTS
        schema = _row_schema(spec)
        disorder = max((s.disorder_us for s in spec.sources), default=0)
        revised, horizon = False, disorder
    else:
        inputs = [planned[name] for name in datasets_read(pipeline.operator)]
        content = _digest(dataset_fingerprint(spec), *(given.content for given in inputs))
        kind, schema = _output(spec, pipeline.operator, specs)
        disorder = max(given.read.disorder_us for given in inputs)
        revised = revises(pipeline.operator, specs) or any(given.read.revised for given in inputs)
        horizon = max(given.horizon_us + given.reach_us for given in inputs)
    topic = model.TopicPlan(
        dataset=spec.name,
        name=f"caraway.{_safe(spec.name)}.{content.hex()[: model.NAME_DIGITS]}",
        kind=kind,
        schema=schema,
        disorder_us=disorder,
        revised=revised,
    )
    operator = pipeline.operator if pipeline else None
    if not isinstance(operator, Aggregate):
        return _Planned(spec=spec, content=content, topic=topic, horizon_us=horizon)
    rows = model.TopicPlan(
        dataset=spec.name,
        name=f"{topic.name}.rows",
        kind=model.TopicKind.VERSIONS,
        schema=_row_schema(spec),
        disorder_us=disorder,
        revised=True,
    )
    return _Planned(
        spec=spec, content=content, topic=topic, horizon_us=horizon, rows=rows, reach_us=_reach_us(operator)
    )


def _reach_us(operator: Aggregate) -> int:
    """Return how far a row of an aggregate may lie behind the newest one, beyond the lateness of aggregate inputs.

    The row of a continuous window is sent as soon as the time is known at which inputs leave the window; the row of a
    hopping or session window is sent when the window closes.
    """
    reach = 0
    for window in (operator.window, *(aggregate.window for aggregate in operator.aggregates)):
        match window:
            case ContinuousWindow(length_us=int(length_us)):
                reach = max(reach, length_us + US_PER_SECOND)
            case HoppingWindow():
                reach = max(reach, window.lookback_us + window.stride_us)
            case SessionWindow():
                reach = max(reach, window.gap_us)
            case _:
                pass
    return reach


def _output(
    spec: DatasetSpec, operator: Operator, specs: Mapping[str, DatasetSpec]
) -> tuple[model.TopicKind, model.RecordSchema]:
    """Return kind and schema of a derived dataset's records: aggregate inputs of an aggregate, else its rows."""
    if isinstance(operator, Aggregate):
        before = schema_of(operator.of, specs)
        used = dict.fromkeys(a.of for a in operator.aggregates if a.of is not None and a.of != before.timestamp)
        types = {name: before.columns[name] for name in (*operator.keys, *used)}
        if operator.along is not None:
            # With `along`, the time of a record is the value of the column that `along` names. The dataset's timestamp
            # becomes one of the record's columns, and orders rows with the same time.
            types[before.timestamp] = DATETIME
        return model.TopicKind.AGGREGATE_INPUTS, _record_schema(spec, operator.keys, types)
    return (model.TopicKind.VERSIONS if spec.keys else model.TopicKind.EVENTS), _row_schema(spec)


def _job(
    planned: _Planned, pipeline: PipelineSpec, by_name: Mapping[str, _Planned], specs: Mapping[str, DatasetSpec]
) -> model.JobPlan:
    operator = pruned(pipeline.operator, specs)
    mode, reason = mode_of(operator)
    return model.JobPlan(
        job_id=_job_id(planned.label, pipeline, operator),
        dataset=planned.spec.name,
        pipeline=pipeline.name,
        operator=operator,
        inputs=tuple(by_name[name].read for name in datasets_read(operator)),
        output=planned.topic,
        mode=mode,
        mode_reason=reason,
        horizon_us=planned.horizon_us,
    )


def _job_id(label: str, pipeline: PipelineSpec, runs: Operator) -> str:
    """Return the id of a job; it includes a hash of the pruned tree if that differs from the written one.

    The job's checkpoint contains the columns that its steps keep, so a release that prunes differently must not read
    it.
    """
    if runs == pipeline.operator:
        return label
    return f"{label}.{pipeline_fingerprint(replace(pipeline, operator=runs)).hex()[:PRUNED_DIGITS]}"


def _is_indexed(spec: DatasetSpec) -> bool:
    return spec.index is not None and (spec.index.online or spec.index.offline)


def _index(planned: _Planned) -> model.IndexPlan:
    aggregate = planned.operator if isinstance(planned.operator, Aggregate) else None
    return model.IndexPlan(
        dataset=planned.spec.name,
        asset=_digest(b"index", planned.content)[:8],
        kind=model.IndexKind.VERSIONS if aggregate is None else model.IndexKind.AGGREGATE,
        topic=planned.topic.name,
        schema=planned.topic.schema,
        revised=planned.topic.revised,
        aggregates=() if aggregate is None else aggregate.aggregates,
        fields=_fields(planned.spec),
        window=None if aggregate is None else aggregate.window,
        along=aggregate is not None and aggregate.along is not None,
        by_clock=aggregate is not None and aggregate.by_clock,
    )


def _emitting(planned: _Planned, rows: model.TopicPlan) -> model.IndexPlan:
    """Return the index that writes the rows of an aggregate to a topic.

    It is a separate index from the one that answers queries, since it is created with the first job that reads the
    rows.
    """
    asset = _digest(b"rows", planned.content)[:8]
    return replace(_index(planned), dataset=f"{planned.spec.name}/rows", asset=asset, emits=rows)


def _fields(spec: DatasetSpec) -> tuple[model.Column, ...]:
    """Return the dataset's columns: keys, values, timestamp."""
    ranked = sorted(spec.fields, key=lambda f: (not f.key, f.timestamp))
    return tuple(model.Column(name=f.name, dtype=f.dtype) for f in ranked)


def _row_schema(spec: DatasetSpec) -> model.RecordSchema:
    """Return the schema of a dataset's own rows."""
    return _record_schema(spec, spec.keys, {f.name: f.dtype for f in spec.fields if not f.timestamp})


def _record_schema(spec: DatasetSpec, keys: tuple[str, ...], types: Mapping[str, DataType]) -> model.RecordSchema:
    names = (*keys, *(name for name in types if name not in keys))
    columns = tuple(model.Column(name=name, dtype=types[name]) for name in names)
    typed = [f"{column.name}: {type_name(column.dtype)}" for column in columns]
    text = "\n".join([",".join(keys), spec.timestamp, *typed])
    return model.RecordSchema(
        keys=columns[: len(keys)],
        columns=columns,
        timestamp=spec.timestamp,
        fingerprint=int.from_bytes(_digest(text.encode())[:4]),
    )


def _digest(*parts: bytes) -> bytes:
    """Return a hash of `parts`, each preceded by its length, so that different lists of parts never hash alike."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


def _safe(name: str) -> str:
    """Return a dataset's name with all characters replaced that a topic's name can't have."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_DATASET_NAME]
