"""The source records of explanations, from the origins of rows."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from caraway.compute.why.lineage import Meeting, Origin
from caraway.compute.why.lookups import shown_row
from caraway.compute.why.model import Met, Source, shown_time
from caraway.compute.why.parts import Hidden, Row
from caraway.graph.specs import DatasetSpec


def source_of(dataset: str, origin: Origin, datasets: Mapping[str, DatasetSpec], hidden: Hidden) -> Source | None:
    """Return the source record of a row; None if the row is itself the record of a source.

    Args:
        dataset: The dataset of the row.
        origin: Its origin.
        datasets: All datasets.
        hidden: Returns why a dataset, or a field of one, isn't shown.
    """
    if origin.dataset == dataset and not origin.steps:
        return None
    joins = tuple(_met(meeting, datasets, hidden) for meeting in origin.joins)
    told = Source(steps=origin.steps, joins=joins, note=origin.note)
    if not origin.dataset:
        return told
    time_us = origin.version.begin_us
    told = replace(told, dataset=origin.dataset, event_time=shown_time(time_us))
    row, reason = shown(origin.dataset, origin.version.row, datasets, hidden)
    return replace(told, row=row, hidden=reason)


def shown(
    dataset: str, row: Row, datasets: Mapping[str, DatasetSpec], hidden: Hidden
) -> tuple[dict[str, object] | None, str | None]:
    """Return the fields of a row that may be shown, and why others aren't; no row at all if the dataset is hidden."""
    fields = {field.name: field.dtype for field in datasets[dataset].fields}
    reasons = {name: reason for name in fields if (reason := hidden(dataset, name)) is not None}
    kept = {name: value for name, value in row.items() if name not in reasons}
    reason = "; ".join(dict.fromkeys(reasons.values())) or None
    return (shown_row(kept, fields) if len(reasons) < len(fields) else None), reason


def _met(meeting: Meeting, datasets: Mapping[str, DatasetSpec], hidden: Hidden) -> Met:
    spec = datasets[meeting.dataset]
    types = {field.name: field.dtype for field in spec.fields}
    key = {name: value for name, value in meeting.key.items() if hidden(meeting.dataset, name) is None}
    told = Met(dataset=meeting.dataset, key=shown_row(key, types), at=shown_time(meeting.at_us))
    version = meeting.version
    if version is None:
        return replace(told, why=_why_none(meeting))
    row, reason = shown(meeting.dataset, version.row, datasets, hidden)
    return replace(
        told,
        row=row,
        since=shown_time(version.begin_us),
        until=None if version.end_us is None else shown_time(version.end_us),
        why="the version that holds at this time",
        hidden=reason,
    )


def _why_none(meeting: Meeting) -> str:
    if meeting.near is None or meeting.low_us is None:
        return "the key has no version at this time"
    return (
        f"the version of {shown_time(meeting.near.begin_us)} is too old: the join's `within` begins at "
        f"{shown_time(meeting.low_us)}"
    )


def sources_of(
    dataset: str, origins: Sequence[Origin], datasets: Mapping[str, DatasetSpec], hidden: Hidden
) -> list[Source | None]:
    """Return the source records of rows; see `source_of`."""
    return [source_of(dataset, origin, datasets, hidden) for origin in origins]
