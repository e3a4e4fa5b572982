"""Remarks on rows that were accepted, or refused, and that look like a mistake of their sender: the answer warns of it.

The remarks on times are constant texts, so that a client that sends many requests shows each of them once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from caraway.dataplane.ingest.table import Table
from caraway.dataplane.ingest.targets import RowError, Span, Target
from caraway.dtypes.durations import print_duration
from caraway.dtypes.instants import SAMPLED_VALUES, lacks_zone, without_zone
from caraway.dtypes.types import DATETIME, base_type

# An event time may be up to this many microseconds later than this machine's clock without a remark, because the clocks
# of senders differ.
CLOCKS_US = 60_000_000


def remarks_on_times(target: Target, rows: Table, span: Span | None, now_us: int) -> Iterator[str]:
    """Yield the remarks on the event times of a dataset's rows, which are in `span`, and on times without a zone."""
    if span is not None:
        longest = target.plan.longest_window_us
        if span[1] > now_us + CLOCKS_US:
            yield f"rows for {target.dataset} have times in the future: check the clock and the unit of the sender"
        if longest is not None and span[0] < now_us - longest:
            yield (
                f"rows for {target.dataset} are older than {print_duration(longest)}, the longest window of what is "
                "computed from it, so that no value of now counts them"
            )
    for column in target.plan.fields:
        if base_type(column.dtype) == DATETIME:
            cells = rows.column(column.name, 0, min(SAMPLED_VALUES, len(rows)))
            if any(map(lacks_zone, cells)):
                yield without_zone(column.name)


def unknown_fields(targets: Sequence[Target], rows: Table) -> list[str]:
    """Return the fields of a payload that none of its datasets reads, sorted."""
    read = [target.columns for target in targets]
    known = [columns for columns in read if columns is not None]
    return sorted(rows.names().difference(*known)) if read and len(known) == len(read) else []


def with_meant(errors: Sequence[RowError], unknown: Sequence[str]) -> list[RowError]:
    """Return errors in which a missing field is connected with an unknown one that has nearly its name."""
    missing = {error.field for error in errors if error.message.startswith("is missing")}
    near = {name: found[0] for name in missing if (found := get_close_matches(name, unknown, 1))}
    return [
        replace(error, message=f"{error.message}; did you mean it by {near[error.field]!r}, which was ignored?")
        if error.message.startswith("is missing") and error.field in near
        else error
        for error in errors
    ]
