"""Limits by branch: what branches share is open only to callers who have the right to it on the other branches, too.

Branches share the topics, jobs and indexes of equal definitions, and rows that are sent to an endpoint of a webhook
reach all branches with a dataset of this endpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from caraway.apps.server.access.limits import AccessLimits, Tagged, require
from caraway.apps.server.control.summary import CommitChange
from caraway.apps.server.served_graph import ServedGraphs
from caraway.errors import ForbiddenError
from caraway.graph.connectors import WebhookConnector
from caraway.graph.plan.model import GraphPlan
from caraway.graph.specs import Graph
from caraway.state.model import MAIN
from caraway.state.permissions import Caller, Mode
from caraway.state.plans import Needed

# The ends of the error message if a commit's author lacks a right on another branch: to read there, and to write there.
REMEDY = "Ask for the right, or give the dataset another version, or another endpoint of the webhook"
SHARED = f"branch {{branch!r}} would share this with it. {REMEDY}"
JOINED = f"branch {{branch!r}} is older and would share this with it, so its writers would write to both. {REMEDY}"
WRITTEN = "what is written on branch {branch!r} reaches it"


class Sharing:
    """Checks the rights of a caller on branches with which another one shares something."""

    def __init__(self, graphs: ServedGraphs, limits: AccessLimits) -> None:
        """Check by these graphs, and by the limits that know the tags of their entities."""
        self._graphs, self._limits = graphs, limits
        # A cache of the topics of each branch, the oldest branch first, with the needs from which they were computed.
        # The topics are computed again when the needs change.
        self._topics: tuple[Needed | None, Mapping[str, frozenset[str]]] = (None, {})

    def check_written(self, caller: Caller, branch: str, written: Iterable[tuple[str, str]]) -> None:
        """Check that a caller who writes in a branch may write in all others that the rows reach, except younger ones.

        A younger branch that shares a topic or an endpoint with this one has asked for the rows by its commit, and must
        not be able to stop the writers of an older one. A branch that has neither shares nothing, so younger branches
        count as well: rows for an endpoint that only others have would reach these alone.

        Args:
            caller: The caller, who may write in the branch.
            branch: The name of the branch.
            written: The names of datasets, with their topics.

        Raises:
            ForbiddenError: The caller may not write to one of the datasets in another branch that counts.
        """
        if caller.may_everywhere(Mode.WRITE_DATA):
            return
        needed, reached = self._graphs.require_needed(), tuple(written)
        if self._topics[0] is not needed:
            self._topics = (needed, _topics(needed))
        for other, topics in self._topics[1].items():
            if other == branch and any(topic in topics for _, topic in reached):
                return
            for dataset, topic in reached:
                if topic in topics:
                    self._check(caller, Mode.WRITE_DATA, other, dataset, WRITTEN.format(branch=branch))

    def check_commit(self, caller: Caller, branch: str, change: CommitChange) -> None:
        """Check that a caller may have on other branches what a commit to a branch would newly share with them.

        Raises:
            ForbiddenError: The caller may not read one of the datasets in any branch that has the data, or in a branch
                whose rows the commit would get. Or the caller may not write to one in a younger branch.
        """
        if caller.may_everywhere(Mode.READ_DATA) and caller.may_everywhere(Mode.WRITE_DATA):
            return
        needed, why = self._graphs.require_needed(), SHARED.format(branch=branch)
        shared = {
            (asset.dataset, tuple(sorted(change.shared[asset.id])))
            for asset in change.allocation.assets
            if asset.id in change.shared
        }
        for dataset, others in sorted(shared):
            self._check_one(caller, others, dataset, why)
        joined = {(other, dataset) for dataset, others in shared for other in others}
        new = _endpoints(change.plan_after).keys() - _endpoints(change.plan_before).keys()
        for other in _by_age(needed):
            for planned in needed.of(other).values() if other != branch else ():
                for endpoint, datasets in _endpoints(planned.plan).items():
                    for dataset in datasets if endpoint in new else ():
                        self._check(caller, Mode.READ_DATA, other, dataset, why)
                        joined.add((other, dataset))
        # After the commit, whoever writes on this branch writes on the younger ones that share the data, without a
        # right there (`check_written`). Here it is not they who chose to share, so the author needs that right.
        older = frozenset(takewhile(lambda other: other != branch, _by_age(needed)))
        for other, dataset in sorted(joined):
            if other not in older:
                self._check(caller, Mode.WRITE_DATA, other, dataset, JOINED.format(branch=branch))

    def check_taken(self, caller: Caller, branch: str, graph: Graph) -> None:
        """Check that a caller may read all definitions and data of a graph of another branch.

        Raises `ForbiddenError` if not.
        """
        for mode in (Mode.READ_DEFINITION, Mode.READ_DATA):
            if not caller.may_all(mode, branch):
                require(caller, mode, branch, self._limits.tags_of(graph).every())

    def _check_one(self, caller: Caller, branches: Sequence[str], dataset: str, why: str) -> None:
        """Check that a caller may read a dataset in one of the branches that have the same rows of it."""
        errors = []
        for branch in branches:
            try:
                return self._check(caller, Mode.READ_DATA, branch, dataset, why)
            except ForbiddenError as error:
                errors.append(error)
        raise errors[0]

    def _check(self, caller: Caller, mode: Mode, branch: str, dataset: str, why: str) -> None:
        if caller.may_all(mode, branch):
            return
        tagged: list[Tagged] = []
        for planned in self._graphs.require_needed().of(branch).values():
            tags = self._limits.tags_of(planned.graph)
            names = [field.name for spec in planned.graph.datasets if spec.name == dataset for field in spec.fields]
            tagged += [(dataset, tags.entities[dataset]), *tags.fields_of(dataset, names)] if names else ()
        if not tagged or not caller.may(mode, branch):
            # The output of a step within a pipeline is a topic whose dataset is in no graph, and so has no tags. A
            # grant that is limited to tags doesn't cover such a topic.
            raise ForbiddenError(f"account {caller.account!r} lacks {mode} on branch {branch!r} for {dataset}: {why}")
        require(caller, mode, branch, tagged, why)


def _by_age(needed: Needed) -> list[str]:
    """Return the names of all branches, the oldest first."""
    return [each.name for each in sorted(needed.heads.branches, key=lambda b: (b.name != MAIN, b.created_at, b.name))]


def _topics(needed: Needed) -> Mapping[str, frozenset[str]]:
    """Return the topics of each branch, the oldest branch first."""
    return {
        branch: frozenset(topic.name for planned in needed.of(branch).values() for topic in planned.plan.topics)
        for branch in _by_age(needed)
    }


def _endpoints(plan: GraphPlan) -> Mapping[tuple[str, str], list[str]]:
    """Return the endpoints of webhooks that feed datasets, each with these datasets."""
    found: dict[tuple[str, str], list[str]] = {}
    for ingest in plan.ingests:
        connector = ingest.source.connector
        if isinstance(connector, WebhookConnector):
            found.setdefault((connector.name, connector.endpoint), []).append(ingest.topic.dataset)
    return found
