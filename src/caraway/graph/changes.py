"""The changes between two graphs: every part of a definition that takes effect, also those that need no new version.

A fingerprint (`caraway.graph.fingerprints`) has only what decides the data. Here owners, tags, sinks, intervals and the
settings of systems count too, so that no commit changes anything in silence. Only the layout of code, pickles, whose
bytes vary between processes, and the environments that selected a part don't count.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, get_args

from caraway.graph.connectors import Connector, SystemConnector
from caraway.graph.drift import Drift
from caraway.graph.fingerprints import source_identity
from caraway.graph.sources import SinkSpec, SourceSpec
from caraway.graph.specs import (
    DatasetSpec,
    FeaturesetSpec,
    FeatureSpec,
    FieldSpec,
    Graph,
    IndexSpec,
    Metadata,
    PipelineSpec,
    PythonExtractor,
)
from caraway.graph.systems import RegisteredSystem, SchemaRegistry, SecretRef, System
from caraway.graph.trees import without_pickles

# The most changes of one definition that are listed.
SHOWN_CHANGES = 8
# The most characters of a value that is shown; a longer one is only said to have changed.
MAX_SHOWN = 80
# The parts whose fields are compared one by one; those of the first ones are named as if they were the whole's own.
FLAT = (Metadata, Connector)
PARTS = (*FLAT, FeatureSpec, FieldSpec, PipelineSpec, SourceSpec, SinkSpec, SchemaRegistry, System, Drift, IndexSpec)
WHOLE = (*PARTS, DatasetSpec, FeaturesetSpec)
# Parameters that may have a password among them, and instants in microseconds, aren't shown.
HIDDEN = frozenset({"jdbc_params", "since_us", "until_us"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The names of entities of one kind, grouped by what a commit does to them.

    `details` has the changes of changed ones, such as "port 5432 → 5433"; values that may be secret aren't shown.
    """

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    details: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything is created, changed or removed."""
        return bool(self.created or self.changed or self.removed)

    def label(self, name: str) -> str:
        """Return a name, with its changes behind it if it is changed."""
        return f"{name} ({'; '.join(self.details[name])})" if name in self.details else name

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield each name that isn't unchanged, with its change."""
        for change in ("created", "changed", "removed"):
            for name in getattr(self, change):
                yield self.label(name), change


def changes(before: Graph, after: Graph) -> dict[str, Changes]:
    """Return the changes of each kind: datasets, featuresets, features, and systems of sources and sinks."""
    old, new = _definitions(before), _definitions(after)
    return {kind: _compared(old[kind], new[kind]) for kind in new}


def _definitions(graph: Graph) -> dict[str, dict[str, Any]]:
    connectors = [end.connector for spec in graph.datasets for ends in (spec.sources, spec.sinks) for end in ends]
    return {
        "datasets": {spec.name: _dataset(spec) for spec in graph.datasets},
        "featuresets": {spec.name: _featureset(spec) for spec in graph.featuresets},
        "features": {f"{spec.name}.{f.name}": f for spec in graph.featuresets for f in spec.features},
        "systems": {
            f"{one.kind} {one.system_name}": one.settings for one in connectors if isinstance(one, SystemConnector)
        },
    }


def _dataset(spec: DatasetSpec) -> DatasetSpec:
    pipelines = (replace(p, operator=without_pickles(p.operator), env=(), source_code="") for p in spec.pipelines)
    sources = (
        replace(source_identity(source), connector=_named(source.connector), every_us=source.every_us, env=())
        for source in spec.sources
    )
    sinks = (replace(sink, connector=_named(sink.connector), env=()) for sink in spec.sinks)
    return replace(spec, sources=tuple(sources), sinks=tuple(sinks), pipelines=tuple(pipelines))


def _featureset(spec: FeaturesetSpec) -> FeaturesetSpec:
    extractors = (
        replace(e, env=(), pickled=b"") if isinstance(e, PythonExtractor) else replace(e, env=())
        for e in spec.extractors
    )
    return replace(spec, extractors=tuple(extractors))


def _named(connector: Connector) -> Connector:
    """Return a connector with only the name of its system, since systems are compared as entities of their own."""
    if not isinstance(connector, SystemConnector):
        return connector
    system: Any = RegisteredSystem(kind=connector.kind, name=connector.system_name)
    return replace(connector, system=system)


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    changed = [name for name in new if name in old and _differ(old[name], new[name])]
    details = {name: tuple(islice(_details(old[name], new[name]), SHOWN_CHANGES)) for name in changed}
    return Changes(
        created=tuple(name for name in new if name not in old),
        changed=tuple(changed),
        removed=tuple(name for name in old if name not in new),
        unchanged=tuple(name for name in new if name in old and name not in details),
        details=details,
    )


def _differ(old: object, new: object) -> bool:
    # The texts of two NaN are equal, while the numbers aren't.
    return old != new and repr(old) != repr(new)


def _details(old: Any, new: Any, name: str = "", shown: Callable[[object], str] = str) -> Iterator[str]:
    within = f"{name} " if name else ""
    if not _differ(old, new):
        return
    if isinstance(old, WHOLE) and type(old) is type(new):
        for item in fields(old):
            a, b = getattr(old, item.name), getattr(new, item.name)
            own = name if isinstance(a, FLAT) else f"{within}{item.name.removesuffix('_us')}"
            yield from _details(a, b, own, partial(_shown, item))
    elif isinstance(old, tuple) and any(isinstance(part, PARTS) for part in (*old, *new)):
        before, after = ({_label(part): part for part in parts} for parts in (old, new))
        for label in dict.fromkeys((*before, *after)):
            one = f"{within.removesuffix('s ')} {label}"
            if label in before and label in after:
                yield from _details(before[label], after[label], one)
            else:
                yield f"{one} {'removed' if label in before else 'added'}"
    else:
        was, now = shown(old), shown(new)
        yield f"{name} {was} → {now}" if was and now else f"{name} changed"


def _label(part: Any) -> str:
    return str(part.connector.identifier if isinstance(part, SourceSpec | SinkSpec) else part.name)


def _shown(item: "Field[Any]", value: object) -> str:
    """Return a value as people read it; "" if it may be secret, isn't short, or has parts."""
    if item.name in HIDDEN or SecretRef in get_args(item.type):
        return ""
    if value is None or value in ((), ""):
        return "not set"
    if isinstance(value, int) and item.name.endswith("_us"):
        return str(timedelta(microseconds=value))
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = str(value) if isinstance(value, int | float | str) else ""
    # A URL may have a password before its host.
    return text if len(text) <= MAX_SHOWN and text.isprintable() and "@" not in text.partition("://")[2] else ""
