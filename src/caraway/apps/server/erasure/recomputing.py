"""Computing again what was computed from erased rows (decision 43).

An erasure downstream first removes the rows from the archive and from the topic of their dataset. Then everything that
was computed from the topic is retired: no commit may use it any more. Each branch that needs some of it gets a commit
with the same definitions, for which it is computed again, from the archive and the topic. The branch serves the old one
until the new one has caught up, as after any other commit. Retired assets are then destroyed at once.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects.postgresql import insert

from caraway.dataplane.topics.erasure_places import DERIVED, RECOMPUTATION, TOPIC
from caraway.graph.plan.model import on_branch
from caraway.graph.plan.planner import plan_graph
from caraway.graph.wire.graphs import decode_graph
from caraway.state.allocation import Asset, AssetState
from caraway.state.asset_store import AssetWriter, Moment, balance, lock_asset_store, read_asset_store, retire
from caraway.state.blueprints import AssetKind
from caraway.state.erasures import is_between
from caraway.state.model import NewCommit, Role
from caraway.state.tables import asset_references, assets, branches, commits, erasure_places, erasures
from caraway.state.writer import write_commit

LOG = structlog.get_logger(__name__)

# The author of commits that compute something again.
AUTHOR = "erasure"
_COMPUTED = frozenset({AssetKind.JOB, AssetKind.INDEX})


def computed_from(topics: Collection[str], existing: Iterable[Asset], *, spared: Collection[str] = ()) -> set[str]:
    """Return the ids of the assets that are computed from topics: jobs, indexes, and the topics that these write.

    Args:
        topics: The ids of topics of sources, which no job and no index writes.
        existing: All assets that aren't gone.
        spared: Ids of indexes that stay, although they read one of the topics.
    """
    left = {asset.id: asset for asset in existing if asset.id not in spared and asset.id not in topics}
    found: set[str] = set()
    reached = set(topics)
    while new := {a.id for a in left.values() if a.kind in _COMPUTED and a.id not in found and reached & {*a.requires}}:
        found |= new
        reached |= new
    # A job or an emitting index requires the topic that it writes. If nothing else requires that topic, the topic is
    # also one of the assets that are computed from `topics`.
    used = {name for a in left.values() if a.id not in found for name in a.requires} | set(topics)
    written = {name for asset_id in found for name in left[asset_id].requires if name in left and name not in used}
    return found | {name for name in written if left[name].kind is AssetKind.TOPIC}


class Recomputing(AssetWriter):
    """Has everything computed again that was computed from erased rows. Thread safe, and for any number of servers.

    Its methods raise `UnavailableError` if Postgres doesn't answer.
    """

    def begin(self) -> tuple[str, ...]:
        """Begin with the erasures whose topics have no row of them any more; return the branches with new commits.

        Erasures of a topic wait as long as an earlier one of it isn't done. Otherwise each would retire what was begun
        for the one before, and if they came faster than the computations end, none would ever end.
        """
        if not self._in_transaction(_due, "look for erasures"):
            return ()

        def run() -> tuple[str, ...]:
            at = self._moment()
            with self._engine.begin() as connection:
                lock_asset_store(connection)
                return _begin(connection, _due(connection), at)

        return self._retry(run, "have erased rows' results computed again")

    def finish(self) -> None:
        """Note the erasures for which everything that was computed from their rows has been destroyed."""
        open_ = _between(RECOMPUTATION, DERIVED)

        def run(connection: sa.Connection) -> None:
            rows = connection.execute(open_).all()
            if not rows:
                return
            existing = _existing(connection)
            retired = set(connection.execute(_retired_ids()).scalars())
            done = [row.id for row in rows if not computed_from({f"{AssetKind.TOPIC}:{row.topic}"}, existing) & retired]
            _note(connection, done, DERIVED)

        self._in_transaction(run, "look what erased rows are still in")

    def retired_indexes(self, *, since: datetime) -> frozenset[str]:
        """Return the names of the indexes that were retired since some time and are gone."""
        return self._retired(AssetKind.INDEX, since)

    def retired_jobs(self, *, since: datetime) -> frozenset[str]:
        """Return the names of the jobs that were retired since some time and are gone."""
        return self._retired(AssetKind.JOB, since)

    def _retired(self, kind: AssetKind, since: datetime) -> frozenset[str]:
        query = sa.select(assets.c.id).where(
            assets.c.kind == kind, assets.c.retired_at >= since, assets.c.state == AssetState.GONE
        )

        def read(connection: sa.Connection) -> frozenset[str]:
            return frozenset(name.partition(":")[2] for name in connection.execute(query).scalars())

        return self._in_transaction(read, "read what is retired")


def _between(reached: str, missing: str) -> sa.Select[tuple[int, str, str, bool]]:
    """Return the query for erasures downstream that have reached one place, but not another one."""
    columns = erasures.c.id, erasures.c.topic, erasures.c.dataset, erasures.c.by_key
    return sa.select(*columns).where(is_between(reached, missing)).order_by(erasures.c.id)


def _due(connection: sa.Connection) -> list[sa.Row[tuple[int, str, str, bool]]]:
    """Return the erasures with which to begin."""
    under_way = {row.topic for row in connection.execute(_between(RECOMPUTATION, DERIVED))}
    return [row for row in connection.execute(_between(TOPIC, RECOMPUTATION)) if row.topic not in under_way]


def _existing(connection: sa.Connection) -> tuple[Asset, ...]:
    return tuple(asset for asset in read_asset_store(connection) if asset.state is not AssetState.GONE)


def _retired_ids() -> sa.Select[tuple[str]]:
    return sa.select(assets.c.id).where(assets.c.retired_at.is_not(None), assets.c.state != AssetState.GONE)


def _note(connection: sa.Connection, numbers: Collection[int], place: str) -> None:
    if numbers:
        rows = [{"erasure_id": number, "place": place} for number in numbers]
        connection.execute(insert(erasure_places).on_conflict_do_nothing(), rows)


def _begin(connection: sa.Connection, due: Sequence[sa.Row[tuple[int, str, str, bool]]], at: Moment) -> tuple[str, ...]:
    """Retire what was computed from the topics of some erasures, and commit each branch that needs it again."""
    if not due:
        # Another server has already begun with these erasures.
        return ()
    existing = _existing(connection)
    retired: set[str] = set()
    for topic in {row.topic for row in due}:
        rows = [row for row in due if row.topic == topic]
        topic_id = f"{AssetKind.TOPIC}:{topic}"
        # The dataset's own index can remove the entries of erased keys itself if all erasures are by the dataset's key,
        # so it stays. Entries can't be found by other columns. With such erasures the index is computed again.
        own = {
            asset.id
            for asset in existing
            if asset.kind is AssetKind.INDEX and topic_id in asset.requires and asset.dataset == rows[0].dataset
        }
        retired |= computed_from({topic_id}, existing, spared=own if all(row.by_key for row in rows) else ())
    retire(connection, retired, at)
    datasets = sorted({row.dataset for row in due})
    heads = (
        sa.select(branches.c.name, branches.c.head)
        .distinct()
        .join_from(asset_references, branches, asset_references.c.branch == branches.c.name)
        .where(asset_references.c.role == Role.HEAD, asset_references.c.asset_id.in_(retired))
        .order_by(branches.c.name)
    )
    found = connection.execute(heads).all() if retired else []
    for name, head in found:
        _commit_again(connection, name, head, datasets, at)
    balance(connection, at)
    _note(connection, [row.id for row in due], RECOMPUTATION)
    if retired:
        LOG.info(
            "what was computed from erased rows is computed again",
            datasets=datasets,
            retired=sorted(retired),
            branches=[name for name, _ in found],
        )
    return tuple(name for name, _ in found)


def _commit_again(connection: sa.Connection, branch: str, head: str, datasets: Sequence[str], at: Moment) -> None:
    before = connection.execute(sa.select(commits).where(commits.c.id == head)).mappings().one()
    message = f"compute again what depends on {', '.join(datasets)}, from which keys were erased"
    commit = NewCommit(
        id=uuid.uuid4().hex,
        branch=branch,
        parent=head,
        message=message,
        author=AUTHOR,
        graph=before["graph"],
        fingerprint=before["fingerprint"],
        summary=(message,),
        plan=on_branch(plan_graph(decode_graph(before["graph"])), branch),
    )
    write_commit(connection, commit, at)
