"""The commit service, with Postgres and Kafka in memory."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caraway.apps.server.control.service import CommitService
from caraway.apps.server.control.summary import CommitChange, differences
from caraway.dtypes.types import BOOL, INT
from caraway.errors import CommitError, ConflictError, ForbiddenError, InvalidInputError, UnavailableError
from caraway.expr.nodes import Binary, BinaryOp, Literal, Node, Ref
from caraway.graph.connectors import TableConnector
from caraway.graph.functions import PythonFunction
from caraway.graph.operators import Filter, FilterFunction, Input
from caraway.graph.plan.model import IngestPlan, SinkPlan
from caraway.graph.sources import Cdc, SinkSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph, Metadata, PipelineSpec
from caraway.graph.systems import PostgresSystem
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.allocation import Asset, allocate
from caraway.state.blueprints import Blueprint, blueprints
from caraway.state.model import Head, NewCommit
from tests.unit.apps.server.control.graphs import HOUR_US, clicks, shopper, spend, users

FIRST = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent", "big"),))


@dataclass
class World:
    """Postgres and Kafka in memory; records the calls in their order."""

    commits: list[NewCommit] = field(default_factory=list)
    asset_store: dict[str, Asset] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    # The branches that refer to assets, by the assets' ids.
    held: dict[str, frozenset[str]] = field(default_factory=dict)

    def references(self, ids: Collection[str]) -> dict[str, frozenset[str]]:
        return {asset_id: self.held[asset_id] for asset_id in ids if asset_id in self.held}

    def head(self, branch: str) -> Head:
        last = self.commits[-1] if self.commits else None
        return Head(branch=branch, commit_id=last.id if last else None, graph=last.graph if last else b"")

    def graph(self, commit_id: str) -> bytes:
        return next(commit.graph for commit in self.commits if commit.id == commit_id)

    def assets(self, contents: Collection[str]) -> tuple[Asset, ...]:
        return tuple(asset for asset in self.asset_store.values() if asset.content in contents)

    def offered(self, wanted: Sequence[Blueprint], branch: str, restores: str | None) -> Sequence[Collection[str]]:
        return [self.asset_store.keys()]

    def publish(self, commit: NewCommit) -> None:
        if commit.parent != self.head(commit.branch).commit_id:
            raise ConflictError("too late")
        self.actions.append("commit")
        self.commits.append(commit)
        wanted = blueprints(commit.plan)
        existing = self.assets({blueprint.content for blueprint in wanted})
        allocation = allocate(wanted, existing, self.offered(wanted, commit.branch, commit.restores))
        self.asset_store |= {asset.id: asset for asset in allocation.created}

    def check(self) -> None:
        self.actions.append("check")

    def converge(self) -> None:
        self.actions.append("converge")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def service(world: World) -> CommitService:
    return CommitService(world, world, world)


def test_a_commit_asks_for_what_only_other_branches_have(world: World, service: CommitService) -> None:
    service.commit(CommitRequest(message="first", graph=FIRST))
    assert world.commits[0].shares == frozenset()
    topics = sorted(name for name in world.asset_store if name.startswith("topic:"))
    world.held = {topics[0]: frozenset({"other"}), topics[1]: frozenset({"other", "main"})}
    asked: list[CommitChange] = []
    changed = Graph(datasets=(clicks(), spend(version=2, above=5.0)))
    service.commit(CommitRequest(message="second", graph=changed, incremental=True), share=asked.append)
    service.roll_back(world.commits[0].id, share=asked.append)
    for change, commit in zip(asked, world.commits[1:], strict=True):
        used = {asset.id for asset in change.allocation.assets} & {topics[0]}
        assert change.shared.keys() == used
        assert commit.shares == frozenset(used)
    assert asked[1].shared == {topics[0]: {"other"}}

    def refuse(_: CommitChange) -> None:
        raise ForbiddenError("not yours")

    made = len(world.commits)
    for preview in (True, False):
        with pytest.raises(ForbiddenError):
            service.roll_back(world.commits[0].id, share=refuse, preview=preview)
        with pytest.raises(ForbiddenError):
            service.commit(CommitRequest(message="third", graph=FIRST, preview=preview), share=refuse)
    assert len(world.commits) == made


def _lines(service: CommitService, graph: Graph, **options: bool) -> str:
    request = CommitRequest(message="change", graph=graph, **options)  # type: ignore[arg-type]
    return "\n".join([*service.commit(request).summary, ""])


def test_a_message_that_postgres_cannot_store_is_refused(world: World, service: CommitService) -> None:
    with pytest.raises(InvalidInputError, match="NUL"):
        service.commit(CommitRequest(message="first\0", graph=FIRST))
    assert world.commits == []


def test_a_commit_is_one_step_between_a_look_at_kafka_and_the_work(world: World, service: CommitService) -> None:
    result = service.commit(CommitRequest(message="first", graph=FIRST), author="me@example.com")
    assert world.actions == ["check", "commit", "converge"]
    commit = world.commits[0]
    assert (commit.id, commit.message, commit.author, commit.parent) == (
        result.commit_id,
        "first",
        "me@example.com",
        None,
    )
    assert decode_graph(commit.graph) == FIRST
    assert [job.dataset for job in commit.plan.jobs] == ["Spend"]
    assert commit.plan == result.plan


def test_the_answer_has_the_records_that_are_read_again_and_the_time(world: World) -> None:
    asked: list[set[str]] = []
    away = False

    def count(topics: Iterable[str]) -> dict[str, int]:
        if away:
            raise UnavailableError("away")
        asked.append(set(topics))
        return dict.fromkeys(topics, 1_200_000)

    service = CommitService(world, world, world, count=count)
    assert "backfill" not in _lines(service, FIRST)
    changed = Graph(datasets=(clicks(), spend(version=2, above=5.0)))
    for preview in (True, False):
        text = _lines(service, changed, incremental=True, preview=preview)
        assert re.search(
            r"^backfill: Spend\.\w+ reads about 1,200,000 records, with its start in about 6[0-9] s$",
            text,
            re.MULTILINE,
        )
    # A topic that this commit creates has no records yet.
    (topic,) = world.commits[0].plan.jobs[0].inputs
    assert asked == [set(), {topic.name}, {topic.name}]
    away = True
    text = _lines(service, Graph(datasets=(clicks(), spend(version=3, above=7.0))), incremental=True, preview=True)
    assert "backfill: unknown, Kafka doesn't answer\n" in text


def test_the_summary_lists_new_entities(service: CommitService) -> None:
    text = _lines(service, FIRST)
    assert text.startswith("committed: the branch holds 2 datasets and 3 features, 1 job\n")
    assert "datasets new: Clicks, Spend\n" in text
    assert "features new: Shopper.user, Shopper.spent, Shopper.big\n" in text
    assert "topics create: caraway.Clicks." in text
    assert "indexes create: Spend." in text
    assert "job start: Spend." in text
    assert "real-time: all of its steps" in text


def test_the_same_again_reuses_everything(world: World, service: CommitService) -> None:
    _lines(service, FIRST)
    text = _lines(service, FIRST)
    assert text.startswith("nothing to change")
    for word in ["datasets unchanged: Clicks, Spend", "topics reuse", "indexes reuse", "job keep: Spend."]:
        assert word in text
    assert "create" not in text
    assert world.commits[1].parent == world.commits[0].id
    assert world.commits[1].plan == world.commits[0].plan


def test_a_preview_changes_nothing(world: World, service: CommitService) -> None:
    result = service.commit(CommitRequest(message="look", graph=FIRST, preview=True))
    assert result.commit_id is None
    assert result.summary[0].startswith("preview, nothing was changed")
    assert "job start: Spend." in "".join(result.summary)
    assert not world.actions


def deleted(graph: Graph) -> Graph:
    gone = Metadata(owner="test@example.com", deleted=True)
    return Graph(
        datasets=tuple(replace(d, metadata=gone) for d in graph.datasets),
        featuresets=tuple(replace(f, metadata=gone) for f in graph.featuresets),
    )


def test_what_is_deleted_stops_and_keeps_its_topic_and_may_be_left_out_from_then_on(
    world: World, service: CommitService
) -> None:
    _lines(service, FIRST)
    gone = deleted(FIRST)
    text = _lines(service, replace(gone, datasets=(*gone.datasets, users())))
    assert "datasets removed: Clicks, Spend" in text
    assert "job stop: Spend." in text
    assert "is kept" in text
    assert world.commits[1].plan.jobs == ()
    assert _lines(service, Graph(datasets=(users(),))).startswith("nothing to change")


def test_a_full_commit_may_not_leave_out_an_entity(world: World, service: CommitService) -> None:
    _lines(service, FIRST)
    with pytest.raises(CommitError) as caught:
        _lines(service, Graph(datasets=(users(),)))
    for fact in ["dataset 'Clicks'", "dataset 'Spend'", "featureset 'Shopper'", "deleted=True", "incremental=True"]:
        assert fact in str(caught.value)
    assert len(world.commits) == 1


@pytest.mark.parametrize("incremental", [True, False])
def test_what_is_computed_from_a_new_version_is_one_itself(service: CommitService, *, incremental: bool) -> None:
    _lines(service, FIRST)
    raised = clicks(version=2, history_us=5)
    alone = Graph(datasets=(raised,)) if incremental else replace(FIRST, datasets=(raised, spend()))
    with pytest.raises(CommitError, match=r"'Spend' is computed from 'Clicks'.*@dataset\(version=2\)"):
        _lines(service, alone, incremental=incremental)
    both = replace(FIRST, datasets=(raised, spend(version=2)))
    text = _lines(service, both, incremental=incremental)
    changed = "Clicks (version 1 → 2; history 1h → 0.000005s), Spend (version 1 → 2)"
    assert f"datasets changed: {changed}\n" in text


def test_an_incremental_commit_adds(world: World, service: CommitService) -> None:
    _lines(service, FIRST)
    text = _lines(service, Graph(datasets=(users(),)), incremental=True)
    assert "datasets new: Users" in text
    assert "datasets unchanged: Clicks, Spend" in text
    assert [d.name for d in decode_graph(world.commits[1].graph).datasets] == ["Clicks", "Spend", "Users"]


def test_a_raised_version_starts_a_new_job_and_stops_the_old(world: World, service: CommitService) -> None:
    _lines(service, FIRST)
    text = _lines(service, Graph(datasets=(spend(version=2, above=5.0),)), incremental=True)
    assert "datasets changed: Spend" in text
    old, new = world.commits[0].plan.jobs[0], world.commits[1].plan.jobs[0]
    assert f"job start: {new.job_id}" in text
    assert f"job stop: {old.job_id}" in text


def test_wrong_definitions_leave_no_trace(world: World, service: CommitService) -> None:
    for graph in [
        Graph(datasets=(spend(),)),  # its input is missing
        Graph(datasets=(replace(spend(), fields=spend().fields[:2]),)),
        Graph(featuresets=(shopper("user", "spent"),)),  # looks up a dataset that is missing
    ]:
        with pytest.raises(CommitError):
            _lines(service, graph)
    assert not world.actions


def test_no_backfill_refuses_new_jobs_only(world: World, service: CommitService) -> None:
    with pytest.raises(CommitError, match=r"computed anew: Spend \(pipeline sum_up\)"):
        _lines(service, FIRST, backfill=False)
    assert not world.actions
    _lines(service, FIRST)
    assert "unchanged: Clicks, Spend" in _lines(service, FIRST, backfill=False)


def test_the_second_of_two_commits_is_refused(world: World, service: CommitService) -> None:
    _lines(service, FIRST)

    class Overtaken(World):
        def check(self) -> None:
            self.commits.append(replace(self.commits[-1], id="another"))

    rival = Overtaken(commits=world.commits)
    slow = CommitService(rival, rival, rival)
    with pytest.raises(ConflictError):
        _lines(slow, Graph(datasets=(users(),)), incremental=True)
    assert rival.commits[-1].id == "another"


def test_several_pipelines_of_a_dataset_are_refused_whatever_their_env(world: World, service: CommitService) -> None:
    pipeline = spend().pipelines[0]
    several = replace(spend(), pipelines=(replace(pipeline, env=("a",)), replace(pipeline, name="other", env=("b",))))
    with pytest.raises(CommitError, match=r"Spend has several pipelines: sum_up \(env a\), other \(env b\)"):
        service.commit(CommitRequest(message="both", graph=Graph(datasets=(clicks(), several))))
    assert world.actions == []


def test_a_rollback_is_a_commit_that_finds_its_assets(world: World, service: CommitService) -> None:
    first = service.commit(CommitRequest(message="first", graph=FIRST))
    _lines(service, Graph(datasets=(spend(version=2, above=5.0),)), incremental=True)
    assert first.commit_id is not None
    looked = service.roll_back(first.commit_id, preview=True)
    assert looked.commit_id is None
    assert len(world.commits) == 2
    back = service.roll_back(first.commit_id, author="me@example.com")
    last = world.commits[-1]
    assert (last.id, last.message, last.author) == (back.commit_id, f"roll back to {first.commit_id}", "me@example.com")
    assert last.graph == world.commits[0].graph
    text = "\n".join(back.summary)
    assert "create" not in text
    assert "job share: Spend." in text


def test_what_another_branch_has_computed_needs_no_backfill(world: World, service: CommitService) -> None:
    _lines(service, FIRST)
    world.commits.clear()
    assert "job share: Spend." in _lines(service, FIRST, backfill=False)


@pytest.mark.parametrize("preview", [True, False])
def test_functions_that_lack_a_module_are_refused_where_definitions_are_new(world: World, preview: bool) -> None:
    asked: list[Sequence[bytes]] = []
    lacks = True

    def check(functions: Sequence[bytes]) -> Sequence[str]:
        asked.append(functions)
        return ["No module named 'tools'" if lacks else "" for _ in functions]

    service = CommitService(world, world, world, check_functions=check)
    request = CommitRequest(message="first", graph=FIRST, preview=preview)
    with pytest.raises(CommitError, match=r"function Shopper\.is_big can't run .*'tools'\n.*@includes.*try"):
        service.commit(request)
    assert (world.actions, asked.pop()) == ([], [b"not run here"])
    lacks = False
    committed = service.commit(replace(request, preview=False)).commit_id
    assert committed is not None
    lacks = True
    # A definition that runs already doesn't block other changes, and a rollback isn't checked.
    service.commit(request)
    service.roll_back(committed, preview=preview)
    assert asked[1:] == [[]]


def test_a_function_that_was_traced_is_not_checked_since_its_expression_runs(world: World) -> None:
    asked: list[bytes] = []

    def check(functions: Sequence[bytes]) -> Sequence[str]:
        asked.extend(functions)
        return [""] * len(functions)

    graph = Graph(datasets=(clicks(), filtered("Traced", Literal(value=True, dtype=BOOL)), filtered("Called")))
    CommitService(world, world, world, check_functions=check).commit(CommitRequest(message="", graph=graph))
    assert asked == [b"Called"]


def filtered(name: str, traced: Node | None = None) -> DatasetSpec:
    function = PythonFunction(name="f", source_code=name, pickled=name.encode())
    operator = FilterFunction(of=Input(dataset="Clicks"), function=function, traced=traced)
    pipeline = PipelineSpec(name="sieve", inputs=("Clicks",), operator=operator)
    return replace(clicks(), name=name, sources=(), pipelines=(pipeline,))


def test_a_new_dataset_is_checked_also_if_a_featureset_has_its_name(world: World, service: CommitService) -> None:
    service.commit(CommitRequest(message="first", graph=FIRST))
    asked: list[Sequence[bytes]] = []

    def check(functions: Sequence[bytes]) -> Sequence[str]:
        asked.append(functions)
        return ["No module named 'tools'"] * len(functions)

    graph = replace(FIRST, datasets=(*FIRST.datasets, filtered("Shopper")))
    with pytest.raises(CommitError, match=r"function Shopper\.f can't run .*'tools'"):
        CommitService(world, world, world, check_functions=check).commit(CommitRequest(message="", graph=graph))
    assert asked == [[b"Shopper"]]


def of_shop(port: int = 55432, key: str = "first secret", **more: Any) -> Graph:
    """Return a dataset that is read from the system "shop", and one computed from it that is written there."""
    shop = PostgresSystem(
        name="shop", host="db", port=port, database="shop", username="ada", password=key, jdbc_params="a=b"
    )
    table = TableConnector(system=shop, table="users", cursor="since")
    read = replace(users(), sources=(SourceSpec(connector=table, disorder_us=HOUR_US, cdc=Cdc.UPSERT, **more),))
    adult = Binary(op=BinaryOp.GT, left=Ref(name="age"), right=Literal(value=17, dtype=INT))
    written = replace(
        read,
        name="Adults",
        sources=(),
        pipelines=(
            PipelineSpec(name="adults", inputs=("Users",), operator=Filter(of=Input(dataset="Users"), predicate=adult)),
        ),
        sinks=(SinkSpec(connector=replace(table, table="adults", cursor=None)),),
    )
    return Graph(datasets=(read, written))


@dataclass
class Systems:
    """The systems of sources and sinks: all can be reached until `away`."""

    away: bool = False
    tried: list[str] = field(default_factory=list)

    def source(self, plans: Sequence[IngestPlan]) -> Sequence[str]:
        self.tried += [f"source {plan.dataset.name}" for plan in plans]
        return [f"dataset {plan.dataset.name}, source shop: away" for plan in plans if self.away]

    def sink(self, plan: SinkPlan) -> None:
        self.tried.append(f"sink {plan.dataset.name}")
        if self.away:
            raise UnavailableError("away")


@pytest.mark.parametrize("preview", [True, False])
def test_other_settings_of_a_system_are_a_change_and_no_secret_is_shown(world: World, *, preview: bool) -> None:
    service = CommitService(world, world, world)
    service.commit(CommitRequest(message="first", graph=of_shop()))
    after = of_shop(55433, "second secret")
    found = service.commit(CommitRequest(message="moved", graph=after, preview=preview))
    assert not found.summary[0].startswith("nothing to change")
    assert "systems changed: Postgres shop (port 55432 → 55433; password changed)" in found.summary
    assert "datasets unchanged: Users, Adults" in found.summary
    shown = found.details["changes"]["systems"]  # type: ignore[index]
    assert shown["changed"] == ("Postgres shop",)
    assert shown["details"] == {"Postgres shop": ("port 55432 → 55433", "password changed")}
    assert not re.search("(first|second) secret", repr((found.summary, found.details)))
    if not preview:
        differing = differences(decode_graph(world.commits[0].graph), decode_graph(world.commits[1].graph))
        assert differing == {
            "added": [],
            "removed": [],
            "changed": ["system Postgres shop"],
            "details": {"system Postgres shop": ("port 55432 → 55433", "password changed")},
        }
        assert world.commits[1].summary == found.summary
    # A commit of the same graph once more changes nothing.
    same = CommitRequest(message="again", graph=of_shop() if preview else after)
    assert service.commit(same).summary[0].startswith("nothing to change")


def test_what_uses_a_changed_system_is_tried_and_refused_like_a_new_one(world: World) -> None:
    systems = Systems()
    service = CommitService(world, world, world, try_sources=systems.source, check_sink=systems.sink)
    service.commit(CommitRequest(message="first", graph=of_shop()))
    assert systems.tried == ["source Users", "sink Adults"]
    systems.away = True
    # A system that is away doesn't prevent the commit of something else.
    read, written = of_shop().datasets
    described = replace(read, metadata=Metadata(owner="test@example.com", description="accounts"))
    for graph in (Graph(datasets=(described, written)), of_shop(every_us=5)):
        service.commit(CommitRequest(message="other", graph=graph))
    assert systems.tried == ["source Users", "sink Adults"]
    commits = len(world.commits)
    for preview in (True, False):
        for changed in (of_shop(port=1), of_shop(key="another")):
            with pytest.raises(CommitError, match="dataset Users, source shop: away"):
                service.commit(CommitRequest(message="moved", graph=changed, preview=preview))
    assert len(world.commits) == commits
    only_sinks = CommitService(world, world, world, check_sink=systems.sink)
    with pytest.raises(CommitError, match=r"dataset Adults, sink .*shop.*: away"):
        only_sinks.commit(CommitRequest(message="moved", graph=of_shop(port=1)))
    # A rollback must not fail because a system is away now, but it says what changes.
    systems.away = False
    service.commit(CommitRequest(message="moved", graph=of_shop(port=2)))
    systems.away = True
    back = service.roll_back(world.commits[0].id)
    assert "systems changed: Postgres shop (port 2 → 55432)" in back.summary
