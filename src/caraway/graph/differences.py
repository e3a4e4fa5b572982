"""Differences between two definitions of one entity: the reasons why its version must be raised.

Only parts of the definition are compared (`caraway.graph.fingerprints`): metadata, index flags, sinks, expectations
that only count rows, and environments may change freely. Expressions and operators are compared as values, so that a
reformatted pipeline is the same; functions are compared as text, including their helpers.
"""

from collections import Counter
from dataclasses import dataclass, replace

from caraway.dtypes.durations import print_duration
from caraway.dtypes.types import type_name
from caraway.expr.printer import print_node
from caraway.graph import specs
from caraway.graph.changes import ABSENT, parts_changed
from caraway.graph.expectations import ExpectationSuite, strict_part
from caraway.graph.fingerprints import (
    extractor_fingerprint,
    pipeline_fingerprint,
    source_fingerprint,
    source_identity,
)
from caraway.graph.references import inputs_of, outputs_of
from caraway.graph.sources import SourceSpec

# A difference quotes this many lines of the old and of the new text of a pipeline or function, beginning with the first
# line that differs.
SHOWN_LINES = 3

WithDefault = specs.LookupExtractor | specs.AliasExtractor


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference, with the old and new value as people read them."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: was {self.old}, is now {self.new}"


def dataset_differences(old: specs.DatasetSpec, new: specs.DatasetSpec) -> tuple[Difference, ...]:
    """Return the differences between two definitions of one dataset, its version aside."""
    found: list[Difference] = []
    if old.history_us != new.history_us:
        old_history, new_history = print_duration(old.history_us), print_duration(new.history_us)
        found.append(Difference(what="history", old=old_history, new=new_history))
    found += _field_differences(old.fields, new.fields)
    found += _source_differences(old.sources, new.sources)
    found += _pipeline_differences(old.pipelines, new.pipelines)
    before, after = strict_part(old.expectations), strict_part(new.expectations)
    if before != after:
        found.append(Difference(what="strict expectations", old=_checks(before), new=_checks(after)))
    return tuple(found)


def extractor_differences(old: specs.Extractor, new: specs.Extractor) -> tuple[Difference, ...]:
    """Return the differences between two definitions of one extractor, its version aside."""
    if extractor_fingerprint(replace(old, version=0)) == extractor_fingerprint(replace(new, version=0)):
        return ()
    if type(old) is not type(new):
        return (Difference(what="kind", old=_kind(old), new=_kind(new)),)
    lists = (("inputs", inputs_of(old), inputs_of(new)), ("outputs", outputs_of(old), outputs_of(new)))
    found = [Difference(what=what, old=_listed(a), new=_listed(b)) for what, a, b in lists if a != b]
    match old, new:
        case specs.PythonExtractor(), specs.PythonExtractor():
            if old.datasets != new.datasets:
                found.append(Difference(what="deps", old=_listed(old.datasets), new=_listed(new.datasets)))
            if old.source_code != new.source_code:
                found.append(_text_difference("code", old.source_code, new.source_code))
        case specs.LookupExtractor(), specs.LookupExtractor():
            before, after = f"{old.dataset}.{old.field}", f"{new.dataset}.{new.field}"
            if before != after:
                found.append(Difference(what="field", old=before, new=after))
        case specs.ExpressionExtractor(), specs.ExpressionExtractor():
            found.append(Difference(what="expression", old=print_node(old.expr), new=print_node(new.expr)))
    if isinstance(old, WithDefault) and isinstance(new, WithDefault) and repr(old.default) != repr(new.default):
        found.append(Difference(what="default", old=repr(old.default), new=repr(new.default)))
    return tuple(found) or (Difference(what="definition", old="another one", new="this one"),)


def _kind(extractor: specs.Extractor) -> str:
    match extractor:
        case specs.LookupExtractor():
            return f"a lookup of {extractor.dataset}.{extractor.field}"
        case specs.AliasExtractor():
            return f"an alias of {extractor.input}"
        case specs.ExpressionExtractor():
            return f"the expression {print_node(extractor.expr)}"
        case specs.PythonExtractor():
            return f"the function {extractor.name}"


def _checks(suite: ExpectationSuite | None) -> str:
    return "none" if suite is None else _listed(tuple(f"{one.name} {one.arguments}" for one in suite.expectations))


def _field_differences(old: tuple[specs.FieldSpec, ...], new: tuple[specs.FieldSpec, ...]) -> list[Difference]:
    before = {f.name: _spelled(f) for f in old}
    after = {f.name: _spelled(f) for f in new}
    names = dict.fromkeys((*before, *after))
    found = [
        Difference(what=f"field {name!r}", old=before.get(name, ABSENT), new=after.get(name, ABSENT))
        for name in names
        if before.get(name) != after.get(name)
    ]
    if not found and tuple(before) != tuple(after):
        found.append(Difference(what="order of the fields", old=_listed(tuple(before)), new=_listed(tuple(after))))
    return found


def _source_differences(old: tuple[SourceSpec, ...], new: tuple[SourceSpec, ...]) -> list[Difference]:
    known, wanted = Counter(map(source_fingerprint, old)), Counter(map(source_fingerprint, new))
    before = tuple(source_identity(s) for s in old if known[found := source_fingerprint(s)] > wanted[found])
    after = tuple(source_identity(s) for s in new if wanted[found := source_fingerprint(s)] > known[found])
    return [
        Difference(what=what, old=was or "another one", new=now or "this one")
        for what, was, now in parts_changed(before, after, "sources")
    ]


def _pipeline_differences(old: tuple[specs.PipelineSpec, ...], new: tuple[specs.PipelineSpec, ...]) -> list[Difference]:
    before = {p.name: p for p in old}
    after = {p.name: p for p in new}
    found: list[Difference] = []
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name), after.get(name)
        what = f"pipeline {name!r}"
        if a is None or b is None:
            found.append(
                Difference(what=what, old=ABSENT if a is None else "there", new=ABSENT if b is None else "there")
            )
        elif a.inputs != b.inputs:
            found.append(Difference(what=f"inputs of {what}", old=_listed(a.inputs), new=_listed(b.inputs)))
        elif pipeline_fingerprint(a) != pipeline_fingerprint(b):
            found.append(_text_difference(what, a.source_code, b.source_code))
    return found


def _text_difference(what: str, old: str, new: str) -> Difference:
    """Return the difference of two texts, shown from their first differing line on.

    Functions with equal texts differ if a name in the text stands for another value now.
    """
    before, after = old.strip().splitlines(), new.strip().splitlines()
    start = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    if before == after:
        return Difference(what=what, old="other values behind the same text", new="what the names in it stand for now")
    return Difference(what=what, old=_excerpt(before[start:]), new=_excerpt(after[start:]))


def _excerpt(lines: list[str]) -> str:
    shown = " ".join(line.strip() for line in lines[:SHOWN_LINES])
    return f"`{shown}{' …' if len(lines) > SHOWN_LINES else ''}`" if lines else "(end of the text)"


def _spelled(f: specs.FieldSpec) -> str:
    role = " (key)" if f.key else " (timestamp)" if f.timestamp else ""
    return type_name(f.dtype) + role


def _listed(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
