"""The changes between two graphs: every part of a definition that takes effect, also those that need no new version.

A fingerprint (`caraway.graph.fingerprints`) has only what decides the data. Here owners, tags, sinks, intervals and the
settings of systems count too, so that no commit changes anything in silence. Only the layout of code, pickles, whose
bytes vary between processes, and the environments that selected a part don't count.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import partial
from itertools import islice
from typing import Any, get_args

from caraway.dtypes.durations import print_duration
from caraway.dtypes.types import DataType
from caraway.errors import shortened
from caraway.expr.nodes import Node
from caraway.graph.connectors import Connector, SystemConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Operator
from caraway.graph.specs import Graph, Metadata, PipelineSpec
from caraway.graph.systems import SecretRef

# At most this many changes of one definition are listed.
SHOWN_CHANGES = 8
# A value with more characters isn't shown: the list only says that it changed. A changed line of code is cut to this
# many.
MAX_SHOWN = 80
# Fields whose differences aren't listed: `env` only selects what is committed, a change of a pickled function shows in
# its text, and a connector's system is compared as an entity of its own.
IGNORED = frozenset({"env", "pickled", "system"})
# Fields whose values aren't shown: `jdbc_params` may contain a password, and the other two are instants in
# microseconds.
HIDDEN = frozenset({"jdbc_params", "since_us", "until_us"})
ABSENT = "not there"


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
        "datasets": {spec.name: spec for spec in graph.datasets},
        "featuresets": {spec.name: spec for spec in graph.featuresets},
        "features": {f"{spec.name}.{f.name}": f for spec in graph.featuresets for f in spec.features},
        "systems": {
            f"{one.kind} {one.system_name}": one.settings for one in connectors if isinstance(one, SystemConnector)
        },
    }


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    found = {name: tuple(islice(parts_changed(old[name], new[name]), SHOWN_CHANGES)) for name in new if name in old}
    return Changes(
        created=tuple(name for name in new if name not in old),
        changed=tuple(name for name in found if found[name]),
        removed=tuple(name for name in old if name not in new),
        unchanged=tuple(name for name in found if not found[name]),
        details={name: tuple(map(_text, parts)) for name, parts in found.items() if parts},
    )


def _text(change: tuple[str, str, str]) -> str:
    what, was, now = change
    return f"{what} {was} → {now}" if was and now else f"{what} changed"


def parts_changed(
    old: Any, new: Any, name: str = "", shown: Callable[[object], str] = str
) -> Iterator[tuple[str, str, str]]:
    """Yield each part that differs between two definitions of one thing, with its old and new value.

    A value is "" if it may be secret, isn't short, or has parts; `shown` returns it as people read it.
    """
    if old == new:
        return
    before, after = _labelled(old), _labelled(new)
    if before is not None and after is not None:
        for label in dict.fromkeys((*before, *after)):
            part = f"{name.partition(' of ')[0].removesuffix('s')} {label}"
            if label in before and label in after:
                yield from parts_changed(before[label], after[label], part)
            else:
                yield part, *(("there", ABSENT) if label in before else (ABSENT, "there"))
        if list(before) != list(after) and before.keys() == after.keys():
            yield f"order of {name}", "", ""
    elif (
        is_dataclass(old)
        and type(old) is type(new)
        and not isinstance(old, Node | Operator | DataType | PythonFunction)
    ):
        for item in fields(old):
            # The source code of a pipeline isn't compared, so another layout of the same operators is no change.
            if item.name not in IGNORED and (item.name != "source_code" or not isinstance(old, PipelineSpec)):
                a, b = getattr(old, item.name), getattr(new, item.name)
                if (
                    isinstance(old, PipelineSpec)
                    and isinstance(new, PipelineSpec)
                    and item.name == "operator"
                    and a != b
                ):
                    yield name, *_first_difference(old.source_code, new.source_code)
                    continue
                own = item.name.removesuffix("_us") + (name and f" of {name}")
                yield from parts_changed(
                    a, b, name if isinstance(a, Metadata | Connector) else own, partial(_shown, item)
                )
    elif repr(old) != repr(new):
        # The `repr` texts are compared instead of the values, because NaN isn't equal to itself and would always be
        # listed as changed.
        yield name, shown(old), shown(new)


def _first_difference(old: str, new: str) -> tuple[str, str]:
    """Return the first lines that differ in two texts, shortened; "" if a text has no such line."""
    for pair in zip(old.splitlines(), new.splitlines(), strict=False):
        was, now = (line.strip() for line in pair)
        if was != now:
            return shortened(was, MAX_SHOWN), shortened(now, MAX_SHOWN)
    return "", ""


def _labelled(parts: Any) -> dict[str, Any] | None:
    """Return parts by their labels; None if these aren't parts, or two have the same label."""
    if not isinstance(parts, tuple) or not all(hasattr(part, "connector") or hasattr(part, "name") for part in parts):
        return None
    found = {
        part.connector.identifier if hasattr(part, "connector") else getattr(part, "output", part.name): part
        for part in parts
    }
    return found if len(found) == len(parts) else None


def _shown(item: "Field[Any]", value: object) -> str:
    """Return a value as people read it; "" if it may be secret, isn't short, or has parts."""
    if item.name in HIDDEN or SecretRef in get_args(item.type):
        return ""
    if value is None or value in ((), ""):
        return "not set"
    if isinstance(value, int) and item.name.endswith("_us"):
        return print_duration(value)
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = str(value) if isinstance(value, int | float | str) else ""
    # A URL may have a password before its host (scheme://user:password@host), so a text with an @ behind :// isn't
    # shown.
    return text if len(text) <= MAX_SHOWN and text.isprintable() and "@" not in text.partition("://")[2] else ""
