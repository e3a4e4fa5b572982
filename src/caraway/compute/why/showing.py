"""Explanations for people: a tree of lines for terminals, and nested lists in HTML for notebooks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caraway.compute.why.model import Listed, Lookup, Met, Position, Source, Step, Why, Window

# A value is shown with at most this many characters; a longer one is cut.
MAX_VALUE = 200
# At most this many rows of a list are shown; an answer may have more.
MAX_ROWS = 20

_ROOT = "font-size:.9em;line-height:1.4;margin:.3em 0;color:inherit"
_FAINT = "opacity:.7"


@dataclass(slots=True)
class Line:
    """A line with those below it."""

    text: str
    below: "list[Line]" = field(default_factory=list)


def text(why: "Why") -> str:
    """Return an explanation as a tree of lines."""
    root = tree(why)
    return "\n".join([root.text, *_branches(root.below, "")])


def as_html(why: "Why") -> str:
    """Return an explanation as HTML without scripts; parts with many lines can be folded."""
    root = tree(why)
    return f'<div style="{_ROOT}"><strong>{escape(root.text)}</strong>{_items(root.below)}</div>'


def tree(why: "Why") -> Line:
    """Return an explanation as lines: the feature, the steps by which it is computed, and their lookups."""
    facts = [f"as of {why.at}", "as it was known then" if why.as_known else ""]
    facts += [f"commit {why.commit[:12]}"] if why.commit else []
    root = Line(f"{why.feature} = {shown_value(why.value)}  ({', '.join(fact for fact in facts if fact)})")
    same = {True: "checked", False: "DIFFERS", None: "not checked"}[why.check.same]
    root.below.append(Line(f"{same}: {why.check.why}"))
    if why.inputs:
        root.below.append(Line(f"given: {_row(why.inputs)}"))
    root.below += [_step(step) for step in why.steps]
    return root


def _step(step: "Step") -> Line:
    line = Line(f"{step.number}. {step.kind} {step.title}: {_row(step.made)}")
    line.below += [Line(f"from {_row(step.given)}")] if step.given else []
    line.below += [Line(detail) for detail in step.details]
    line.below += [_lookup(lookup) for lookup in step.lookups]
    return line


def _lookup(lookup: "Lookup") -> Line:
    line = Line(f"{lookup.dataset}[{_row(lookup.key)}] as of {lookup.at}: {_row(lookup.values)}")
    line.below += [Line(lookup.why)] if lookup.why else []
    line.below += [Line(f"hidden: {lookup.hidden}")] if lookup.hidden else []
    for name, record in (("met", lookup.met), ("before", lookup.before), ("after", lookup.after)):
        if record is not None:
            line.below.append(_listed(record, f"{name}: "))
    line.below += [_window(window) for window in lookup.windows]
    page = lookup.parts
    if page is not None and page.items:
        kind = "a sample of them" if page.sampled else f"from {page.offset + 1:,} on"
        rest = "" if len(page.items) == page.total else f", {len(page.items):,} of {page.total:,} listed, {kind}"
        line.below.append(Line(f"rows that count{rest}", _cut([_listed(item) for item in page.items])))
    return line


def _window(window: "Window") -> Line:
    begin = window.begin or "the beginning"
    line = Line(f"{window.text} = {shown_value(window.value)}  [{begin}, {window.end})")
    facts = [] if window.count is None else [f"{window.count:,} rows"]
    facts += [f"first {window.first}, last {window.last}"] if window.first else []
    facts += (
        [f"least {shown_value(window.least)}, greatest {shown_value(window.greatest)}"]
        if window.least is not None
        else []
    )
    line.below += [Line(", ".join(facts))] if facts else []
    line.below += [_listed(window.left, "just out: ")] if window.left is not None else []
    line.below += [_listed(window.next, "not yet in: ")] if window.next is not None else []
    return line


def _listed(record: "Listed", name: str = "") -> Line:
    shown = "deleted" if record.deleted else _row(record.row or {})
    facts = [f"until {record.ends}" if record.ends else "", f"ingested {record.ingested}" if record.ingested else ""]
    facts += [_position(record.position), record.why]
    line = Line(f"{name}{record.event_time} {shown}{_facts(facts)}")
    if record.source is not None:
        line.below.append(_source(record.source))
    return line


def _source(source: "Source") -> Line:
    facts = [f"ingested {source.ingested}" if source.ingested else "", _position(source.position)]
    # `source.mark` isn't shown, since it names all rows that were sent together, which may be hundreds.
    facts += [source.hidden or "", source.note or ""]
    row = "" if source.row is None else f" {_row(source.row)}"
    line = Line(f"made from {source.dataset or 'other rows'} {source.event_time or ''}{row}{_facts(facts)}")
    line.below += [Line(f"step: {step}") for step in source.steps]
    line.below += [_met(met) for met in source.joins]
    return line


def _met(met: "Met") -> Line:
    facts = [f"since {met.since}" if met.since else "", f"until {met.until}" if met.until else ""]
    facts += [met.why, met.hidden or ""]
    row = "no version" if met.row is None else _row(met.row)
    return Line(f"joined {met.dataset}[{_row(met.key)}] as of {met.at}: {row}{_facts(facts)}")


def _facts(facts: Sequence[str]) -> str:
    told = "; ".join(fact for fact in facts if fact)
    return f"  ({told})" if told else ""


def _position(position: "Position | None") -> str:
    if position is None:
        return ""
    number = f"+{position.number}" if position.number else ""
    return f"{position.topic} {position.partition}@{position.offset}{number}"


def _row(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {shown_value(value)}" for name, value in values.items())


def shown_value(value: object) -> str:
    """Return a value as JSON, and a text as it is; a long one is cut."""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= MAX_VALUE else f"{shown[: MAX_VALUE - 1]}…"


def _cut(lines: list[Line]) -> list[Line]:
    rest = len(lines) - MAX_ROWS
    return lines if rest <= 0 else [*lines[:MAX_ROWS], Line(f"and {rest:,} more")]


def _branches(lines: Sequence[Line], before: str) -> Iterator[str]:
    for place, line in enumerate(lines):
        is_last = place == len(lines) - 1
        yield f"{before}{'└─ ' if is_last else '├─ '}{line.text}"
        yield from _branches(line.below, before + ("   " if is_last else "│  "))


def _items(lines: Sequence[Line]) -> str:
    return f'<ul style="margin:.1em 0;padding-left:1.3em">{"".join(map(_item, lines))}</ul>' if lines else ""


def _item(line: Line) -> str:
    if not line.below:
        return f'<li style="{_FAINT}">{escape(line.text)}</li>'
    return f"<li><details open><summary>{escape(line.text)}</summary>{_items(line.below)}</details></li>"
