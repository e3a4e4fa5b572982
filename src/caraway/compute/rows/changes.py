"""Conversion of a source's records to the changes of a dataset, for sources of every kind."""

from collections.abc import Mapping, Sequence

from caraway.compute.rows.batches import LeftOut
from caraway.compute.rows.calls import HERE, Conversion
from caraway.compute.rows.cdc import CapturedChange, ChangeKind, MappedChanges, map_envelopes
from caraway.compute.rows.records import map_records, rejection
from caraway.compute.rows.sampling import sampler
from caraway.graph.source_checks import sample_columns
from caraway.graph.sources import SourceSpec
from caraway.graph.specs import DatasetSpec


def is_plain(source: SourceSpec) -> bool:
    """Return whether the rows of a source are only cast: each makes one insert, and all are admitted."""
    return not source.preproc and admits_all(source) and not source.cdc.has_envelopes


def admits_all(source: SourceSpec) -> bool:
    """Return whether a source leaves out no insert."""
    return all(part is None for part in (source.where, source.sample, source.since_us, source.until_us))


def admitted_changes(
    dataset: DatasetSpec, source: SourceSpec, records: Mapping[int, Mapping[str, object]], how: Conversion = HERE
) -> MappedChanges:
    """Return the changes that a source admits, from self-describing records by number.

    Inserts are admitted by since, until and sample. A delete is admitted whatever its time, because the row that it
    deletes may have been admitted; it is left out only if that row isn't in the sample.
    """
    numbers, payload = list(records), list(records.values())
    if source.cdc.has_envelopes:
        mapped = map_envelopes(dataset, source, payload, how, numbers=numbers)
        changes: Sequence[CapturedChange] = mapped.changes
        errors, left_out = mapped.errors, dict(mapped.left_out)
    else:
        rows = map_records(dataset, source, payload, how, numbers=numbers)
        errors = rows.errors
        changes = [
            CapturedChange(number=number, kind=ChangeKind.INSERT, row=row, at_us=_instant(row[dataset.timestamp]))
            for number, row in rows.rows
        ]
        left_out = {}
        if len(rows.rows) + len(errors) < len(numbers):
            known = {change.number for change in changes} | {error.row for error in errors}
            left_out = {number: LeftOut.WHERE for number in numbers if number not in known}
    if source.since_us is None and source.until_us is None and source.sample is None:
        return MappedChanges(changes=tuple(changes), errors=errors, left_out=left_out)
    why, is_sampled = rejection(dataset, source), sampler(dataset, source)
    sampled_by = set(() if source.sample is None else sample_columns(dataset, source))
    admitted: list[CapturedChange] = []
    rejected: dict[int, LeftOut] = {}
    for change in changes:
        if change.kind is ChangeKind.INSERT:
            reason = why(change.row)
        else:
            reason = None if not change.row.keys() >= sampled_by or is_sampled(change.row) else LeftOut.SAMPLE
        if reason is None:
            admitted.append(change)
        else:
            rejected[change.number] = reason
    if rejected:
        # A record may make two changes, a delete and an insert. If only one of them is rejected, the record doesn't
        # count as left out.
        kept = {change.number for change in admitted}
        left_out |= {number: reason for number, reason in rejected.items() if number not in kept}
    return MappedChanges(changes=tuple(admitted), errors=errors, left_out=left_out)


def _instant(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 (a row in stored form)
    return value
