"""The findings of the skew watch in Postgres: how often served features were computed again, and with what result.

The counts of a pass, its samples and the positions up to which it has looked are written in one transaction
(`caraway.state.watched`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from caraway.state.findings import CountKey, FeatureCounts, Finding, Findings, Sample
from caraway.state.tables import skew_counts, skew_samples, skew_totals
from caraway.state.watched import WatchedStore

# At most this many samples are stored of each finding about a feature, and at most this many characters of each value.
KEPT_SAMPLES = 20
MAX_TEXT = 1_000
# One statement deletes at most this many samples.
FORGOTTEN_AT_ONCE = 1_000


class SkewStore(WatchedStore):
    """Writes and reads findings. Thread safe.

    All methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def __init__(self, engine: sa.Engine) -> None:
        """Work through `engine` (`caraway.state.database.connect`)."""
        super().__init__(engine, "skew", found="compared")

    def add(self, found: Findings, allowed: Callable[[sa.Connection], bool] = lambda _: True) -> bool:
        """Add the findings of a pass, and return whether they count now.

        They don't count, and nothing is written, if another pass has gone on from the same positions meanwhile, or if
        `allowed` returns False in the same transaction.
        """

        def write(connection: sa.Connection) -> None:
            if found.counts:
                connection.execute(_counted(skew_counts), _count_rows(found.counts))
                connection.execute(_counted(skew_totals), _total_rows(found.counts))
            if found.samples:
                connection.execute(sa.insert(skew_samples), [_sample_row(sample) for sample in found.samples])
                _drop_old_samples(connection, {(s.branch, s.feature, s.finding.value) for s in found.samples})

        return self._record(found.topic_id, found.since, found.until, write, allowed)

    def forget(self, positions: Sequence[tuple[int, int, int]]) -> None:
        """Remove the samples of rows, which are named by partition, offset and number."""
        at = sa.tuple_(skew_samples.c.partition, skew_samples.c.offset, skew_samples.c.row)
        for first in range(0, len(positions), FORGOTTEN_AT_ONCE):
            self._delete(sa.delete(skew_samples).where(at.in_(positions[first : first + FORGOTTEN_AT_ONCE])))

    def prune(self, before: datetime, branches: Collection[str]) -> None:
        """Remove the findings of values that were served before a time, and those of other branches than these."""

        def remove(connection: sa.Connection) -> None:
            for table, time in ((skew_counts, skew_counts.c.hour), (skew_samples, skew_samples.c.served_at)):
                gone = sa.or_(time < before, table.c.branch.not_in(branches))
                connection.execute(sa.delete(table).where(gone))
            connection.execute(sa.delete(skew_totals).where(skew_totals.c.branch.not_in(branches)))

        self._in_transaction(remove, "remove old findings of skew")

    def counts(self, branch: str, since: datetime) -> list[FeatureCounts]:
        """Return the counts of values that a branch served since a time, by feature and commit."""
        table = skew_counts
        query = (
            sa.select(table.c.feature, table.c.commit_id, table.c.finding, sa.func.sum(table.c.count))
            .where(table.c.branch == branch, table.c.hour >= since)
            .group_by(table.c.feature, table.c.commit_id, table.c.finding)
            .order_by(table.c.feature, table.c.commit_id)
        )
        rows = self._in_transaction(lambda connection: connection.execute(query).all(), "read the findings of skew")
        found: dict[tuple[str, str], dict[Finding, int]] = {}
        for feature, commit, finding, count in rows:
            found.setdefault((feature, commit), {})[Finding(finding)] = int(count)
        return [
            FeatureCounts(feature=feature, commit=commit, counts=counts) for (feature, commit), counts in found.items()
        ]

    def samples(self, branch: str, since: datetime, features: Collection[str], limit: int) -> list[Sample]:
        """Return samples of features of a branch, of values that were served since a time.

        The newest ones of each finding about each feature come first, so that none of them hides the others.
        """
        table = skew_samples
        kind = sa.func.row_number().over(partition_by=[table.c.feature, table.c.finding], order_by=table.c.id.desc())
        query = (
            sa.select(table)
            .where(table.c.branch == branch, table.c.served_at >= since, table.c.feature.in_(features))
            .order_by(kind, table.c.id.desc())
            .limit(limit)
        )
        rows = self._in_transaction(
            lambda connection: connection.execute(query).mappings().all(), "read samples of skew"
        )
        return [_sample(row) for row in rows]

    def totals(self) -> dict[tuple[str, str, Finding], int]:
        """Return the counts of all time by branch, feature and finding."""
        query = sa.select(skew_totals)
        rows = self._in_transaction(lambda connection: connection.execute(query).all(), "read the findings of skew")
        return {(branch, feature, Finding(finding)): count for branch, feature, finding, count in rows}

    def _delete(self, statement: sa.Delete) -> None:
        self._in_transaction(lambda connection: connection.execute(statement), "forget samples of skew")


def _counted(table: sa.Table) -> Any:
    statement = insert(table)
    more = {"count": table.c.count + statement.excluded.count}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=more)


def _count_rows(counts: Mapping[CountKey, int]) -> list[dict[str, Any]]:
    return [
        {
            "branch": key.branch,
            "commit_id": key.commit,
            "feature": key.feature,
            "hour": key.hour,
            "finding": key.finding.value,
            "count": count,
        }
        for key, count in counts.items()
    ]


def _total_rows(counts: Mapping[CountKey, int]) -> list[dict[str, Any]]:
    totals: Counter[tuple[str, str, str]] = Counter()
    for key, count in counts.items():
        totals[key.branch, key.feature, key.finding.value] += count
    return [
        {"branch": branch, "feature": feature, "finding": finding, "count": count}
        for (branch, feature, finding), count in totals.items()
    ]


def _drop_old_samples(connection: sa.Connection, kinds: Iterable[tuple[str, str, str]]) -> None:
    table = skew_samples
    for branch, feature, finding in kinds:
        alike = sa.and_(table.c.branch == branch, table.c.feature == feature, table.c.finding == finding)
        kept = sa.select(table.c.id).where(alike).order_by(table.c.id.desc()).limit(KEPT_SAMPLES)
        connection.execute(sa.delete(table).where(alike, table.c.id.not_in(kept.scalar_subquery())))


def _sample_row(sample: Sample) -> dict[str, Any]:
    return {
        "branch": sample.branch,
        "commit_id": sample.commit,
        "feature": sample.feature,
        "finding": sample.finding.value,
        "served_at": sample.served_at,
        "at": sample.at,
        "query": sample.query,
        "served": _text(sample.served),
        "recomputed": _text(sample.recomputed),
        "partition": sample.partition,
        "offset": sample.offset,
        "row": sample.row,
    }


def _sample(row: sa.RowMapping) -> Sample:
    return Sample(
        branch=row["branch"],
        commit=row["commit_id"],
        feature=row["feature"],
        finding=Finding(row["finding"]),
        served_at=row["served_at"],
        at=row["at"],
        query=row["query"],
        served=row["served"],
        recomputed=row["recomputed"],
        partition=row["partition"],
        offset=row["offset"],
        row=row["row"],
    )


def _text(text: str) -> str:
    """Return a text as Postgres can store it, cut if it is long."""
    shown = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return shown if len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}…"
