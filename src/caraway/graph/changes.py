"""The changes between two graphs: every part of a definition that takes effect, also those that need no new version.

A fingerprint (`caraway.graph.fingerprints`) has only what decides the data. Here owners, tags, sinks, intervals and the
settings of systems count too, so that no commit changes anything in silence. Only the layout of code, pickles, whose
bytes vary between processes, and the environments that selected a part don't count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from datetime import timedelta
from typing import Any, get_args

from caraway.graph.connectors import Connector, SystemConnector
from caraway.graph.drift import Drift
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.fingerprints import source_identity
from caraway.graph.references import outputs_of
from caraway.graph.sources import SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, Extractor, Graph, IndexSpec, Metadata, PythonExtractor
from caraway.graph.systems import RegisteredSystem, SchemaRegistry, SecretRef, System
from caraway.graph.trees import without_pickles

# The most changes of one definition that are listed; the others are only counted.
SHOWN_CHANGES = 8
# The most characters of a value that is shown; a longer one is only said to have changed.
MAX_SHOWN = 80
# The parts of a definition whose fields are compared one by one; those of the first two are named like the whole's own.
FLAT = (Metadata, Connector)
DEEP = (*FLAT, System, SchemaRegistry, Drift, IndexSpec, ExpectationSuite)
# Fields whose values aren't shown: parameters that may have a password among them, and instants, which aren't readable.
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

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield each name that isn't unchanged, with its change."""
        for change in ("created", "changed", "removed"):
            for name in getattr(self, change):
                yield name, "; ".join((change, *self.details.get(name, ())))


def changes(before: Graph, after: Graph) -> dict[str, Changes]:
    """Return the changes of each kind: datasets, featuresets, features, and systems of sources and sinks."""
    old, new = _definitions(before), _definitions(after)
    return {kind: _compared(old[kind], new[kind]) for kind in new}


def _definitions(graph: Graph) -> dict[str, dict[str, Any]]:
    connectors = [end.connector for spec in graph.datasets for ends in (spec.sources, spec.sinks) for end in ends]
    return {
        "datasets": {spec.name: _dataset(spec) for spec in graph.datasets},
        "featuresets": {
            spec.name: replace(spec, extractors=tuple(map(_extractor, spec.extractors))) for spec in graph.featuresets
        },
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


def _named(connector: Connector) -> Connector:
    """Return a connector with only the name of its system, since systems are compared as entities of their own."""
    if not isinstance(connector, SystemConnector):
        return connector
    system: Any = RegisteredSystem(kind=connector.kind, name=connector.system_name)
    return replace(connector, system=system)


def _extractor(spec: Extractor) -> Extractor:
    return replace(spec, env=(), pickled=b"") if isinstance(spec, PythonExtractor) else replace(spec, env=())


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    changed = [name for name in new if name in old and _differ(old[name], new[name])]
    details = {name: _bounded(list(_details(old[name], new[name]))) for name in changed}
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


def _bounded(found: list[str]) -> tuple[str, ...]:
    more = len(found) - SHOWN_CHANGES
    return (*found[:SHOWN_CHANGES], f"{more} more") if more > 0 else tuple(found)


def _details(old: Any, new: Any, within: str = "") -> Iterator[str]:
    if type(old) is not type(new):
        yield f"{within}another kind"
        return
    for item in fields(old):
        a, b = getattr(old, item.name), getattr(new, item.name)
        if not _differ(a, b):
            continue
        name = f"{within}{item.name.removesuffix('_us')}"
        if isinstance(a, tuple) and any(map(is_dataclass, (*a, *b))):
            yield from _parts(item.name.removesuffix("s"), a, b)
        elif isinstance(a, DEEP) and type(a) is type(b):
            yield from _details(a, b, within if isinstance(a, FLAT) else f"{name} ")
        else:
            was, now = _shown(item, a), _shown(item, b)
            yield f"{name} {was} → {now}" if was and now else f"{name} changed"


def _parts(kind: str, old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[str]:
    """Yield the changes of a list of parts; two parts of one label are the same one, before and after."""
    before, after = set(map(repr, old)), set(map(repr, new))
    came = [part for part in new if repr(part) not in before]
    for part in old:
        if repr(part) in after:
            continue
        label = _label(kind, part)
        other = next((one for one in came if _label(kind, one) == label), None)
        if other is None:
            yield f"{label} removed"
        else:
            came.remove(other)
            yield from _details(part, other, f"{label}: ")
    yield from (f"{_label(kind, part)} added" for part in came)


def _label(kind: str, part: Any) -> str:
    if isinstance(part, SourceSpec | SinkSpec):
        return f"{kind} {part.connector.identifier}"
    return f"{kind} {', '.join(outputs_of(part)) if isinstance(part, Extractor) else part.name}"


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
    # A URL may have a password before its host.
    shown = (
        isinstance(value, int | float | str)
        and len(str(value)) <= MAX_SHOWN
        and "@" not in str(value).partition("://")[2]
    )
    return str(value) if shown and str(value).isprintable() else ""
