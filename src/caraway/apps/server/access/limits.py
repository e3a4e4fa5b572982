"""Limits by tags: the features, extractors, datasets and fields that a caller may touch.

A caller with the mode on a whole branch is served as if there were no limits. For any other caller the query plan is
checked, once for each plan, so that no kind of request leads around the limits.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from caraway.apps.server.http.messages import Request
from caraway.apps.server.served_graph import Queryable, ServedGraph, ServedGraphs
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.event_times import is_time_column
from caraway.compute.query.executor import Answer, CompiledPlan
from caraway.compute.query.model import AliasStep, ExpressionStep, LookupStep, PythonStep, QueryPlan
from caraway.dataplane.ingest.endpoints import Endpoint
from caraway.errors import ForbiddenError
from caraway.graph.lineage import effective_field_tags, effective_tags, extractor_tags
from caraway.graph.references import outputs_of
from caraway.graph.specs import Graph
from caraway.state.blueprints import EMITS
from caraway.state.permissions import Caller, Grant, Mode
from caraway.state.plans import Planned

# The most permitted query plans that are cached for one graph, each for a caller and a branch, and the most graphs
# whose tags are cached. If a cache is full, it is cleared, and its entries are computed again when they are needed.
MAX_CHECKED = 10_000
MAX_GRAPHS = 100
# The most combinations of grants and branch for which the readable part of a graph is cached. Few are in use, since
# there are few roles.
MAX_READABLE = 50
# The most callers, each with a branch, for which the queryable part of a served graph is cached.
MAX_SEEN = 1_000

NO_TAGS = frozenset[str]()
# The full name of an entity, and its tags.
Tagged = tuple[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a graph's entities, the query plans that callers were found to be permitted, and what they may see.

    `entities` and `fields` have full names as keys, and `extractors` names such as `extractor User.age`.
    `seen` has, for each caller and branch, the served graph and its part that the caller may query. Plans and callers
    are compared by `id`, which is quick. The entries hold both objects, so that no new object can get the `id` of a
    freed one.
    """

    entities: Mapping[str, frozenset[str]]
    fields: Mapping[str, frozenset[str]]
    extractors: Mapping[str, frozenset[str]]
    checked: dict[tuple[int, int, str], tuple[CompiledPlan, Caller]] = field(default_factory=dict)
    readable: dict[tuple[tuple[Grant, ...], str], Graph] = field(default_factory=dict)
    seen: dict[tuple[int, str], tuple[Caller, ServedGraph, ServedGraph]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> "Tags":
        """Compute the tags of a graph."""
        entities = effective_tags(graph)
        return cls(entities, effective_field_tags(graph), extractor_tags(graph, entities))

    def merged(self, other: "Tags") -> "Tags":
        """Return the tags that entities have here or in another graph."""

        def both(
            one: Mapping[str, frozenset[str]], another: Mapping[str, frozenset[str]]
        ) -> Mapping[str, frozenset[str]]:
            return {name: one.get(name, NO_TAGS) | another.get(name, NO_TAGS) for name in (*one, *another)}

        return Tags(
            both(self.entities, other.entities),
            both(self.fields, other.fields),
            both(self.extractors, other.extractors),
        )

    def touched(self, plan: QueryPlan) -> Iterator[Tagged]:
        """Yield the names, with tags, of all that a query reads or computes; what the caller supplies isn't read."""
        for column in plan.outputs:
            yield self._entity(column.name)
        for step in plan.steps:
            match step:
                case LookupStep():
                    # The tags of a field include those of its dataset, so the dataset needs no check of its own. The
                    # time column of a row isn't checked either: a caller who may read a value of the row may know its
                    # time.
                    read = [found for found in step.features if not is_time_column(found.column)]
                    yield from (self._entity(found.column) for found in read)
                    yield from self.fields_of(step.dataset, (found.field for found in read))
                case AliasStep():
                    yield self._entity(step.output)
                case ExpressionStep():
                    yield from (self._entity(computed.column) for computed in step.features)
                case PythonStep():
                    yield from (self._entity(name) for name, _ in step.outputs)
                    yield from map(self._entity, step.datasets)
                    name = f"extractor {step.featureset}.{step.extractor}"
                    yield name, self.extractors[name]
                case _:
                    assert_never(step)

    def every(self) -> Iterator[Tagged]:
        """Yield the names of all entities, fields and extractors, with their tags."""
        for kind in (self.entities, self.fields, self.extractors):
            yield from kind.items()

    def fields_of(self, dataset: str, names: Iterable[str]) -> Iterator[Tagged]:
        """Return the names of fields, with their tags."""
        return ((full := f"{dataset}.{name}", self.fields.get(full, frozenset())) for name in names)

    def _entity(self, name: str) -> Tagged:
        return name, self.entities.get(name, frozenset())


class AccessLimits:
    """Restricts callers to the entities that they may see. A server has one instance."""

    def __init__(self, graphs: ServedGraphs) -> None:
        """Restrict what callers see of these graphs."""
        self._graphs = graphs
        # Each entry holds its graph, so that no other graph can get the same `id` while the entry exists.
        self._tags: dict[int, tuple[Graph, Tags]] = {}

    def seen(self, request: Request[Any, Any]) -> ServedGraph:
        """Return the graph that the request's branch serves, restricted to what the request's caller may query.

        Raises:
            UnavailableError: The graph hasn't been read yet.
            UnknownEntityError: There is no such branch.
        """
        served = self._graphs.require_served_graph(request.branch)
        caller = request.caller
        if caller.may_all(Mode.READ_DATA, request.branch):
            return served
        tags, key = self.tags(served), (id(caller), request.branch)
        found = tags.seen.get(key)
        if found is not None and found[1] is served:
            return found[2]
        if len(tags.seen) >= MAX_SEEN:
            tags.seen.clear()
        limited = replace(served, queries=LimitedQueries(served.queries, tags, caller, request.branch))
        tags.seen[key] = (caller, served, limited)
        return limited

    def check_log(self, request: Request[Any, Any], served: ServedGraph, endpoint: Endpoint) -> None:
        """Check that the caller may write to the datasets that an endpoint feeds in the request's branch.

        Other branches that read the endpoint get the rows too (`caraway.apps.server.access.sharing`).

        Raises:
            ForbiddenError: The caller may not write to one of the datasets.
        """
        if request.caller.may_all(Mode.WRITE_DATA, request.branch):
            return
        entities = self.tags(served).entities
        fed = [(target.dataset, entities[target.dataset]) for target in endpoint.targets if target.dataset in entities]
        if not fed:
            # The endpoint feeds no dataset of this branch, only datasets of other branches. A grant that is limited to
            # tags allows a write by the tags of the datasets that are fed in this branch, so here it allows no write.
            raise ForbiddenError(
                f"account {request.caller.account!r} has {Mode.WRITE_DATA} by tags only, and endpoint "
                f"{endpoint.name!r} feeds no dataset of branch {request.branch!r}"
            )
        require(request.caller, Mode.WRITE_DATA, request.branch, fed)

    def definitions(self, request: Request[Any, Any], served: ServedGraph) -> Graph:
        """Return the definitions of the request's branch that the caller may read.

        Fields, features and extractors that the caller may not read are left out of their datasets and featuresets. A
        definition that stays may name one that is left out.
        """
        caller, branch = request.caller, request.branch
        if caller.may_all(Mode.READ_DEFINITION, branch):
            return served.graph
        tags = self.tags(served)
        key = (caller.grants, branch)
        found = tags.readable.get(key)
        if found is None:
            if len(tags.readable) >= MAX_READABLE:
                tags.readable.clear()
            found = tags.readable[key] = readable(served.graph, tags, caller, branch)
        return found

    def shown_assets(
        self, caller: Caller, references: Callable[[], Mapping[str, Collection[str]]]
    ) -> Callable[[str, str], bool]:
        """Return whether assets, given as the names of their datasets and their ids, may be shown to the caller.

        An asset is if the caller may read its dataset's definition on a branch, is kept from it on none of these
        branches by its tags, and may read definitions of a branch that needs the asset. The name of the dataset alone
        isn't enough, since everybody who may commit to a branch can give a dataset there the name of another branch's.

        Args:
            caller: The caller.
            references: Returns the branches that need each asset, by its id. It isn't called if all may be shown.
        """
        if caller.may_everywhere(Mode.READ_DEFINITION):
            return lambda _dataset, _asset: True
        shown, hidden = set[str](), set[str]()
        for branch, served in self._graphs.all().items():
            if caller.may(Mode.READ_DEFINITION, branch):
                tags = self.tags(served).entities
                tagged = {spec.name: tags[spec.name] for spec in served.graph.datasets}
                allowed = permitted(caller, Mode.READ_DEFINITION, branch, tagged)
                shown |= allowed
                hidden |= tagged.keys() - allowed
        datasets = shown - hidden
        assets = {
            asset.partition(EMITS)[0]
            for asset, branches in references().items()
            if any(caller.may(Mode.READ_DEFINITION, branch) for branch in branches)
        }
        return lambda dataset, asset: dataset in datasets and asset.partition(EMITS)[0] in assets

    def check_fields(
        self, request: Request[Any, Any], served: ServedGraph, mode: Mode, dataset: str, names: Iterable[str]
    ) -> None:
        """Check that the caller has a mode on fields of a dataset. Raises `ForbiddenError` if not."""
        if not request.caller.may_all(mode, request.branch):
            require(request.caller, mode, request.branch, self.tags(served).fields_of(dataset, names))

    def check_branch(self, caller: Caller, modes: Iterable[Mode], branch: str, held: Mapping[str, Planned]) -> None:
        """Check that the caller has modes on a branch for all that some commits hold.

        Raises `ForbiddenError` if the caller lacks a mode.
        """
        for mode in modes:
            # A caller with the mode on the whole branch needs no check of single entities. So such a caller may also
            # change entities of newer commits, which this server hasn't read yet.
            if caller.may_all(mode, branch):
                continue
            if not caller.may(mode, branch):
                raise ForbiddenError(f"account {caller.account!r} lacks {mode} on branch {branch!r}")
            for planned in held.values():
                tags = self.tags_of(planned.graph)
                reads = mode in {Mode.READ_DEFINITION, Mode.READ_DATA}
                # Datasets are written as a whole, so the modes of writing have no limits by the tags of fields.
                written = [*tags.entities.items(), *tags.extractors.items()]
                require(caller, mode, branch, tags.every() if reads else written)

    def tags(self, served: ServedGraph) -> Tags:
        """Return the tags of a served graph."""
        return self.tags_of(served.graph)

    def tags_of(self, graph: Graph) -> Tags:
        """Return the tags of a graph, which are computed once."""
        found = self._tags.get(id(graph))
        if found is None:
            if len(self._tags) >= MAX_GRAPHS:
                self._tags.clear()
            found = self._tags[id(graph)] = (graph, Tags.of(graph))
        return found[1]


@dataclass(frozen=True, slots=True)
class LimitedQueries:
    """Queries, restricted to what a caller may see."""

    queries: Queryable
    tags: Tags
    caller: Caller
    branch: str

    @property
    def catalog(self) -> Catalog:
        """The datasets and features that can be queried."""
        return self.queries.catalog

    @property
    def asks_others(self) -> bool:
        """True if other servers may have parts of the index, so that a lookup may take a while."""
        return self.queries.asks_others

    def plan(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        foreign_inputs: bool = False,
        event_times: bool = False,
    ) -> CompiledPlan:
        """Return the plan of a query if the caller may read all that it touches."""
        plan = self.queries.plan(inputs, outputs, foreign_inputs=foreign_inputs, event_times=event_times)
        checked = self.tags.checked
        key = (id(plan), id(self.caller), self.branch)
        if key not in checked:
            require(self.caller, Mode.READ_DATA, self.branch, self.tags.touched(plan.plan))
            if len(checked) >= MAX_CHECKED:
                checked.clear()
            checked[key] = (plan, self.caller)
        return plan

    def lookup(
        self,
        dataset: str,
        keys: Sequence[Mapping[str, object]],
        fields: Sequence[str],
        timestamps: Sequence[object] | None = None,
    ) -> tuple[list[bool], Answer]:
        """Look up rows if the caller may read all fields wanted."""
        wanted = fields or [spec.name for spec in self.queries.catalog.dataset(dataset).fields]
        require(self.caller, Mode.READ_DATA, self.branch, self.tags.fields_of(dataset, wanted))
        return self.queries.lookup(dataset, keys, fields, timestamps)


def permitted(caller: Caller, mode: Mode, branch: str, entities: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return those of some entities, given with their tags, on which a caller has a mode."""
    return frozenset(entities).difference(caller.refused(mode, branch, entities.items()))


def readable(graph: Graph, tags: Tags, caller: Caller, branch: str) -> Graph:
    """Return the part of a graph whose definitions a caller may read on a branch."""
    entities, fields, extractors = (
        permitted(caller, Mode.READ_DEFINITION, branch, tagged)
        for tagged in (tags.entities, tags.fields, tags.extractors)
    )
    featuresets = []
    for spec in graph.featuresets:
        features = tuple(feature for feature in spec.features if f"{spec.name}.{feature.name}" in entities)
        # `entities` doesn't list featuresets. A featureset is shown if one of its features is, or if it has no features
        # at all.
        if features or not spec.features:
            left = tuple(
                extractor
                for extractor in spec.extractors
                if f"extractor {spec.name}.{extractor.name}" in extractors
                and entities.issuperset(outputs_of(extractor))
            )
            featuresets.append(replace(spec, features=features, extractors=left))
    return Graph(
        datasets=tuple(
            replace(spec, fields=tuple(f for f in spec.fields if f.timestamp or f"{spec.name}.{f.name}" in fields))
            for spec in graph.datasets
            if spec.name in entities
        ),
        featuresets=tuple(featuresets),
    )


def approval(caller: Caller, branch: str) -> Callable[[Iterable[Tagged]], None]:
    """Return the check of the entities that a commit touches."""

    def approve(touched: Iterable[Tagged]) -> None:
        if not caller.may_all(Mode.WRITE_DEFINITION, branch):
            require(caller, Mode.WRITE_DEFINITION, branch, touched)

    return approve


def require(caller: Caller, mode: Mode, branch: str, entities: Iterable[Tagged], why: str = "") -> None:
    """Check that a caller has a mode on entities; `why` says why it is needed."""
    missing = caller.refused(mode, branch, entities)
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise ForbiddenError(
            f"account {caller.account!r} lacks {mode} on branch {branch!r} for: {names[:1000]}{why and '; '}{why}"
        )
