"""What differs between two definitions of one entity: the reason why a version must be raised.

Only what is part of a definition is compared: metadata and index flags may change freely. Expressions and operators are
compared as values, so that a pipeline that was merely reformatted is the same.
"""

from dataclasses import dataclass
from datetime import timedelta

from caraway.dtypes.types import type_name
from caraway.graph.connectors import identifier
from caraway.graph.sources import SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, PipelineSpec, PythonExtractor

# A pipeline's or function's text is shown from its first differing line on, no more than this many lines of it.
SHOWN_LINES = 3
ABSENT = "not there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that differs, with its old and new value as people read them."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: was {self.old}, is now {self.new}"


def dataset_differences(old: DatasetSpec, new: DatasetSpec) -> tuple[Difference, ...]:
    """List what differs in the definitions of one dataset, its version aside."""
    found: list[Difference] = []
    if old.history_us != new.history_us:
        found.append(
            Difference(
                what="history",
                old=str(timedelta(microseconds=old.history_us)),
                new=str(timedelta(microseconds=new.history_us)),
            )
        )
    found += _field_differences(old.fields, new.fields)
    found += _source_differences(old.sources, new.sources)
    found += _pipeline_differences(old.pipelines, new.pipelines)
    return tuple(found)


def extractor_differences(old: PythonExtractor, new: PythonExtractor) -> tuple[Difference, ...]:
    """List what differs in the definitions of one user-written extractor, its version aside."""
    lists = (
        ("inputs", old.inputs, new.inputs),
        ("outputs", old.outputs, new.outputs),
        ("deps", old.datasets, new.datasets),
    )
    found = [Difference(what=what, old=_listed(a), new=_listed(b)) for what, a, b in lists if a != b]
    if old.source_code != new.source_code:
        found.append(_text_difference("code", old.source_code, new.source_code))
    return tuple(found)


def _field_differences(old: tuple[FieldSpec, ...], new: tuple[FieldSpec, ...]) -> list[Difference]:
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
    before = {identifier(s.connector): _spelled_source(s) for s in old}
    after = {identifier(s.connector): _spelled_source(s) for s in new}
    return [
        Difference(what=f"source {name}", old=before.get(name, ABSENT), new=after.get(name, ABSENT))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _pipeline_differences(old: tuple[PipelineSpec, ...], new: tuple[PipelineSpec, ...]) -> list[Difference]:
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
        elif a.operator != b.operator:
            found.append(_text_difference(what, a.source_code, b.source_code))
    return found


def _text_difference(what: str, old: str, new: str) -> Difference:
    """Show two texts from their first differing line on; equal texts may hold names that mean something else."""
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


def _spelled(f: FieldSpec) -> str:
    role = " (key)" if f.key else " (timestamp)" if f.timestamp else ""
    return type_name(f.dtype) + role


def _spelled_source(source: SourceSpec) -> str:
    return f"cdc {source.cdc}, disorder {timedelta(microseconds=source.disorder_us)}"


def _listed(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"
