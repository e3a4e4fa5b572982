"""Explanations of lookups: the version that was met, or the rows in each window."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace as with_facts

from caraway.compute.query.catalog import Catalog
from caraway.compute.reference.aggregates.numbers import number_of, rank
from caraway.compute.why.groups import GroupRead, own_window
from caraway.compute.why.model import LISTED, MAX_LISTED, Listed, Lookup, Page, Source, Values, Window, shown_time
from caraway.compute.why.parts import Held, Hidden, Histories, Key, Row
from caraway.compute.why.windows import NEVER
from caraway.dtypes.durations import print_duration
from caraway.dtypes.types import DataType, DatetimeType, DateType, DecimalType, FloatType, IntType, base_type, optional
from caraway.dtypes.values import to_json
from caraway.graph.aggregates import AggregateSpec
from caraway.graph.operators import Aggregate
from caraway.graph.schemas import WINDOW_KEY, schema_of
from caraway.graph.specs import DatasetSpec
from caraway.graph.trees import datasets_read
from caraway.graph.windows import print_window

Ints = npt.NDArray[np.int64]

_ORDERED = (IntType, FloatType, DecimalType, DateType, DatetimeType)


@dataclass(frozen=True, slots=True)
class Asked:
    """The read of a row.

    Attributes:
        dataset: The dataset.
        key: The key in stored form, in the order of the dataset's key fields.
        at_us: The time as of which it is read.
        values: The fields that were read, with the values that were found.
        found: True if there was a row.
    """

    dataset: str
    key: Key
    at_us: int
    values: Mapping[str, object]
    found: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The choice of the parts of a lookup that an answer lists.

    Attributes:
        offset: How many come before the listed ones.
        limit: How many are listed at most.
        sample: List a sample instead, evenly spread over all parts.
    """

    offset: int = 0
    limit: int = LISTED
    sample: bool = False

    def __post_init__(self) -> None:
        """Keep the limit within what an answer may have."""
        if not 0 <= self.limit <= MAX_LISTED or self.offset < 0:
            raise ValueError(f"limit is from 0 to {MAX_LISTED}, offset from 0 on")

    def of(self, places: Ints) -> Ints:
        """Return the places that are listed."""
        if not self.sample or len(places) <= self.limit:
            return places[self.offset : self.offset + self.limit]
        if not self.limit:
            return places[:0]
        return places[np.linspace(0, len(places) - 1, self.limit).astype(np.int64)]


@dataclass(frozen=True, slots=True)
class LookupExplained:
    """An explained lookup, with the values that its parts give, as far as they can be computed."""

    lookup: Lookup
    computed: Mapping[str, object]


def aggregation_of(spec: DatasetSpec) -> Aggregate | None:
    """Return the aggregation that computes a dataset; None if none does."""
    operator = spec.pipelines[0].operator if spec.pipelines else None
    return operator if isinstance(operator, Aggregate) else None


def group_read(
    catalog: Catalog, operator: Aggregate, spec: DatasetSpec, histories: Histories, asked: Asked
) -> GroupRead:
    """Return the read of a group."""
    key, window = group_key(spec, asked.key)
    return GroupRead(
        operator,
        schema_of(operator.of, catalog.datasets),
        histories.inputs(asked.dataset, key),
        asked.at_us,
        window,
    )


def group_key(spec: DatasetSpec, key: Key) -> tuple[Key, tuple[int, int] | None]:
    """Divide a key into that of the group and the window, if there is one."""
    if WINDOW_KEY not in spec.keys:
        return key, None
    place = list(spec.keys).index(WINDOW_KEY)
    bounds = key[place]
    if not isinstance(bounds, list | tuple):
        raise TypeError(f"{bounds!r} is no window")
    begin, end = bounds
    return (*key[:place], *key[place + 1 :]), (begin, end)


def explain_lookup(
    catalog: Catalog, histories: Histories, asked: Asked, *, listing: Listing, hidden: Hidden
) -> LookupExplained:
    """Explain the read of a row."""
    spec = catalog.dataset(asked.dataset)
    types = {field.name: field.dtype for field in spec.fields}
    lookup = Lookup(
        dataset=asked.dataset,
        key=shown_row(dict(zip(spec.keys, asked.key, strict=True)), types),
        at=shown_time(asked.at_us),
        found=asked.found,
        values=shown_row(asked.values, types),
    )
    if histories.erased(asked.dataset, asked.key):
        return LookupExplained(
            with_facts(lookup, why="the key is erased: it has no rows, and nothing is shown of it"), {}
        )
    operator = aggregation_of(spec)
    if operator is None or not histories.has_inputs(asked.dataset):
        return _versions(spec, lookup, histories, asked, hidden)
    read = group_read(catalog, operator, spec, histories, asked)
    return _aggregates(read, lookup, asked, _Shown(spec, histories, listing, hidden))


# Versions ------------------------------------------------------------------------------------------------------------


def met_at(versions: Sequence[Held], at_us: int) -> int | None:
    """Return the place of the last version that begins at a time or before; None if there is none."""
    found = [place for place, version in enumerate(versions) if version.time_us <= at_us]
    return found[-1] if found else None


def _versions(spec: DatasetSpec, lookup: Lookup, histories: Histories, asked: Asked, hidden: Hidden) -> LookupExplained:
    versions = histories.versions(asked.dataset, asked.key)
    place = met_at(versions, asked.at_us)
    met = None if place is None else versions[place]
    before = None if not place else versions[place - 1]
    after_place = 0 if place is None else place + 1
    after = versions[after_place] if after_place < len(versions) else None
    ended = after.time_us if after is not None else NEVER
    near = [
        (met if met is None else replace(met, end_us=ended), _why_met(met)),
        (before, _why_not_before(before, met)),
        (after, "it begins after the time of the read"),
    ]
    records = [record for record, _ in near if record is not None]
    sources = dict(zip(map(id, records), histories.sources(asked.dataset, records), strict=True))
    types = {field.name: field.dtype for field in spec.fields}
    listed = [
        None if record is None else _listed(spec.name, record, types, hidden, sources.get(id(record)), why=why)
        for record, why in near
    ]
    if met is None:
        told = "the key has no version yet" if versions else "the key has never had a version"
    elif met.deleted:
        told = f"the key was deleted at {shown_time(met.time_us)}"
    else:
        told = f"the version of {shown_time(met.time_us)} holds, one of {len(versions):,}"
    explained = with_facts(lookup, why=told, met=listed[0], before=listed[1], after=listed[2])
    computed = {} if met is None or met.deleted else {name: met.row.get(name) for name in asked.values}
    return LookupExplained(explained, computed)


def _why_met(met: Held | None) -> str:
    if met is None:
        return ""
    return "it deletes the key" if met.deleted else "it is the newest version up to the time of the read"


def _why_not_before(before: Held | None, met: Held | None) -> str:
    if before is None or met is None:
        return ""
    if before.time_us == met.time_us:
        return "a record of the same event time came later, and counts instead"
    return f"it was replaced at {shown_time(met.time_us)}"


# Aggregates ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shown:
    """The records of a dataset, and the choice of those that are shown."""

    spec: DatasetSpec
    histories: Histories
    listing: Listing
    hidden: Hidden


def _aggregates(read: GroupRead, lookup: Lookup, asked: Asked, shown: _Shown) -> LookupExplained:
    operator, spec, listing, hidden = read.operator, shown.spec, shown.listing, shown.hidden
    specs = [aggregate for aggregate in operator.aggregates if aggregate.into in asked.values]
    values = {aggregate.into: read.value(aggregate) for aggregate in specs} if asked.found else {}
    reason = hidden_inputs(operator, hidden)
    computed = dict(values)
    changed_us = read.changed_us()
    if asked.found and changed_us is not None:
        computed[spec.timestamp] = changed_us
    counting = read.counting([aggregate.into for aggregate in specs])
    if reason is not None:
        windows = tuple(_window(read, aggregate, asked, {}, bare=True) for aggregate in specs)
        return LookupExplained(with_facts(lookup, windows=windows, hidden=reason), computed)
    chosen = listing.of(counting).tolist()
    edges = {aggregate.into: (read.left_last(aggregate.into), read.comes_next(aggregate.into)) for aggregate in specs}
    beside = [place for pair in edges.values() for place in pair if place is not None]
    every = dict.fromkeys([*chosen, *beside])
    records = {place: read.inputs.parts.held(place) for place in every}
    sources = dict(zip(records, shown.histories.sources(spec.name, list(records.values())), strict=True))
    within = {aggregate.into: set(read.places(aggregate.into).tolist()) for aggregate in specs}

    def listed(place: int, why: str = "") -> Listed:
        names = tuple(name for name, places in within.items() if place in places)
        return _listed(spec.name, records[place], read.before.columns, hidden, sources[place], why=why, within=names)

    windows = tuple(_window(read, aggregate, asked, edges, listed) for aggregate in specs)
    items = tuple(map(listed, chosen))
    sampled = listing.sample and len(counting) > listing.limit
    told = _why_group(read, asked, len(counting))
    max_event_time = None
    if any(not _is_continuous(aggregate, operator) for aggregate in operator.aggregates):
        max_event_time = shown_time(read.inputs.max_event_time_us)
    return LookupExplained(
        with_facts(
            lookup,
            why=told,
            windows=windows,
            parts=Page(total=len(counting), offset=0 if sampled else listing.offset, items=items, sampled=sampled),
            max_event_time=max_event_time,
        ),
        computed,
    )


def hidden_inputs(operator: Aggregate, hidden: Hidden) -> str | None:
    """Return why the inputs of an aggregation aren't shown; None if they are.

    A caller who may read a sum may not be allowed to read what was added, so all inputs must be readable as a whole.
    """
    for name in datasets_read(operator):
        if (reason := hidden(name, None)) is not None:
            return reason
    return None


def _is_continuous(spec: AggregateSpec, operator: Aggregate) -> bool:
    return operator.window is None and not hasattr(own_window(spec), "stride_us")


def _why_group(read: GroupRead, asked: Asked, count: int) -> str:
    if not len(read.inputs.parts.times):
        return "no row of this key has ever come, so the defaults are read"
    if not asked.found:
        return "no row of this key had entered a window by then, so the defaults are read"
    if not count:
        return "the rows of this key have left the windows"
    return f"{count:,} of {len(read.inputs.parts.times):,} rows of this key are in the windows"


def _window(
    read: GroupRead,
    spec: AggregateSpec,
    asked: Asked,
    edges: Mapping[str, tuple[int | None, int | None]],
    listed: Callable[[int, str], Listed] | None = None,
    *,
    bare: bool = False,
) -> Window:
    begin_us, end_us = read.span(spec)
    shown = Window(
        aggregate=spec.into,
        text=aggregate_text(spec, read.operator),
        value=json_of(asked.values[spec.into], spec.dtype),
        begin=None if begin_us is None else shown_time(begin_us),
        end=shown_time(end_us),
    )
    if bare or listed is None:
        return shown
    places = read.places(spec.into)
    times = read.inputs.parts.times[places]
    values = [value for value in read.values(spec, places) if value is not None]
    least, greatest = _extremes(values, read.type_of(spec))
    left, following = edges[spec.into]
    return with_facts(
        shown,
        count=len(places),
        values=len(values),
        first=shown_time(int(times[0])) if len(times) else None,
        last=shown_time(int(times[-1])) if len(times) else None,
        least=least,
        greatest=greatest,
        left=None if left is None else listed(left, _why_left(read, spec, left)),
        next=None if following is None else listed(following, _why_next(read, spec, following)),
    )


def _why_left(read: GroupRead, spec: AggregateSpec, place: int) -> str:
    leaves = int(read.lives[spec.into].leaves[place])
    end = int(read.inputs.parts.ends[place])
    reason = "the next version of its key, or a delete, ended it" if end <= leaves else "the window moved on"
    return f"it left at {shown_time(leaves)}: {reason}"


def _why_next(read: GroupRead, spec: AggregateSpec, place: int) -> str:
    time_us = int(read.inputs.parts.times[place])
    if time_us > read.at_us:
        return "its event time is after the time of the read"
    if read.window is not None:
        return "it lies behind the end of the window"
    enters = int(read.lives[spec.into].enters[place])
    return f"its bucket ends at {shown_time(enters)} and isn't closed yet"


def _extremes(values: Sequence[Any], dtype: DataType | None) -> tuple[Any, Any]:
    if not values or dtype is None or not isinstance(base_type(dtype), _ORDERED):
        return None, None
    number = number_of(dtype)
    ordered = sorted(values, key=lambda value: rank(number(value)))
    return json_of(ordered[0], dtype), json_of(ordered[-1], dtype)


def aggregate_text(spec: AggregateSpec, operator: Aggregate) -> str:
    """Return an aggregate as a definition has it."""
    window = spec.window if spec.window is not None else operator.window
    facts = [spec.of or "", "" if window is None else f"window={print_window(window)}"]
    facts += [f"{name}=True" for name in ("unique", "dropnull", "dedup", "approx") if getattr(spec, name)]
    facts += [f"limit={spec.limit}"] if spec.limit is not None else []
    facts += [f"p={spec.p}"] if spec.p is not None else []
    facts += [f'half_life="{print_duration(spec.half_life_us)}"'] if spec.half_life_us is not None else []
    return f"{spec.into} = {spec.function.value}({', '.join(fact for fact in facts if fact)})"


# Values --------------------------------------------------------------------------------------------------------------


def json_of(value: object, dtype: DataType | None) -> Any:
    """Return a stored value as JSON has it."""
    return value if value is None or dtype is None else to_json(optional(dtype))(value)


def shown_row(row: Row, types: Mapping[str, DataType]) -> Values:
    """Return the columns of a row that have a type, as JSON has them."""
    return {name: json_of(value, types[name]) for name, value in row.items() if name in types}


def _listed(
    dataset: str,
    record: Held,
    types: Mapping[str, DataType],
    hidden: Hidden,
    source: Source | None,
    *,
    why: str = "",
    within: tuple[str, ...] = (),
) -> Listed:
    row = {name: value for name, value in record.row.items() if hidden(dataset, name) is None}
    return Listed(
        event_time=shown_time(record.time_us),
        row=shown_row(row, types),
        ends=None if record.end_us == NEVER else shown_time(record.end_us),
        ingested=None if record.ingested_us is None else shown_time(record.ingested_us),
        position=record.position,
        within=within,
        why=why,
        source=source,
        deleted=record.deleted,
    )
