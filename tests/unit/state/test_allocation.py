"""The laws of allocation and settlement: allocated assets have all that they require, and settling twice is stable."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.state.allocation import ENDING, Action, Asset, AssetState, allocate, settle
from caraway.state.blueprints import (
    DEFINITION_DIGITS,
    AssetKind,
    Blueprint,
    apply_generations,
    blueprints,
    content_of,
    id_of,
    source_name,
)
from tests.effort import examples
from tests.unit.apps.server.control.graphs import clicks, spend, users

GRAPH = Graph(datasets=(clicks(), users(), spend()))
WANTED = blueprints(plan_graph(GRAPH))

states = st.sampled_from(list(AssetState))


@st.composite
def asset_stores(draw: st.DrawFn) -> tuple[Asset, ...]:
    """Return an asset store that has known all datasets of the graph, with each asset in any state."""
    first = allocate(WANTED, ()).assets
    return tuple(replace(asset, state=draw(states)) for asset in first)


def offer(*groups: Iterable[Asset]) -> list[set[str]]:
    """Return the ids of the assets of each group."""
    return [{asset.id for asset in group} for group in groups]


def test_blueprints_come_after_those_that_they_require() -> None:
    assert [blueprint.kind for blueprint in WANTED].count(AssetKind.TOPIC) == 3
    seen: set[str] = set()
    for blueprint in WANTED:
        assert set(blueprint.requires) <= seen
        assert set(blueprint.writes) <= set(blueprint.requires)
        seen.add(blueprint.content)
    plan = plan_graph(GRAPH)
    pieces = (plan.topics, plan.jobs, plan.indexes, plan.ingests)
    assert {content_of(piece) for kind in pieces for piece in kind} == seen


def test_the_first_time_all_is_made() -> None:
    allocation = allocate(WANTED, ())
    assert allocation.created == allocation.assets
    assert not allocation.condemned
    assert not allocation.generations


@given(asset_stores())
@settings(max_examples=examples(200))
def test_what_is_allocated_fits_together(existing: tuple[Asset, ...]) -> None:
    allocation = allocate(WANTED, existing, offer(existing))
    by_id = {asset.id: asset for asset in allocation.assets}
    assert [asset.content for asset in allocation.assets] == [blueprint.content for blueprint in WANTED]
    for asset in allocation.assets:
        assert asset.state not in ENDING
        assert set(asset.requires) <= set(by_id), "stands on an asset of the same allocation"
    reused = {asset.id for asset in existing} & set(by_id)
    assert {asset.id for asset in allocation.created} == set(by_id) - reused
    for asset in allocation.created:
        assert not {asset.id for asset in existing} & {asset.id}
    # A living asset is either reused or condemned, so no content has two of them.
    for asset in existing:
        assert asset.state in ENDING or (asset.id in reused) is not (asset in allocation.condemned)


@given(asset_stores())
@settings(max_examples=examples(100))
def test_a_topic_is_not_filled_by_another_job_than_before(existing: tuple[Asset, ...]) -> None:
    assets = {asset.content: asset for asset in allocate(WANTED, existing, offer(existing)).assets}
    for blueprint in WANTED:
        for written in blueprint.writes:
            assert (assets[written].generation == 1) is (assets[blueprint.content].generation == 1)


def test_what_is_not_offered_is_neither_reused_nor_condemned() -> None:
    first = allocate(WANTED, ()).assets
    allocation = allocate(WANTED, first)
    assert allocation.created == allocation.assets
    assert not allocation.condemned
    assert set(allocation.generations.values()) == {2}


@given(asset_stores(), st.data())
@settings(max_examples=examples(200))
def test_only_what_is_offered_is_reused_and_the_first_that_fits_is_preferred(
    existing: tuple[Asset, ...], data: st.DataObject
) -> None:
    ready = allocate(WANTED, existing, ()).assets
    every = [*existing, *ready]
    offered = data.draw(st.lists(st.sets(st.sampled_from([asset.id for asset in every])), max_size=3))
    allocation = allocate(WANTED, every, offered)
    reused = {asset.id for asset in every} & {asset.id for asset in allocation.assets}
    assert reused <= set().union(*offered)
    by_id = {asset.id: asset for asset in allocation.assets}
    assert len(by_id) == len(WANTED)
    for asset in allocation.assets:
        assert set(asset.requires) <= set(by_id)
    # A branch that has all assets keeps them, whatever else is offered.
    own = allocate(WANTED, every, [*offer(ready), *offered])
    assert own.assets == ready
    assert not own.created


def test_the_output_of_a_job_being_destroyed_is_created_anew_and_its_inputs_are_reused() -> None:
    first = allocate(WANTED, ()).assets
    existing = [
        replace(asset, state=AssetState.DESTROYING if asset.kind is AssetKind.JOB else AssetState.READY)
        for asset in first
    ]
    allocation = allocate(WANTED, existing, offer(existing))
    anew = {(asset.dataset, asset.kind) for asset in allocation.created}
    assert anew == {("Spend", kind) for kind in (AssetKind.TOPIC, AssetKind.JOB, AssetKind.INDEX)}
    # The job is already being destroyed, so the topic that it filled is condemned.
    assert {(asset.dataset, asset.kind) for asset in allocation.condemned} == anew - {("Spend", AssetKind.JOB)}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("second", [AssetState.READY, AssetState.GONE])
def test_of_several_generations_the_newest_counts(order: int, second: AssetState) -> None:
    gone = [replace(asset, state=AssetState.GONE) for asset in allocate(WANTED, ()).assets]
    further = [replace(asset, state=second) for asset in allocate(WANTED, gone).assets]
    allocation = allocate(WANTED, [*gone, *further][::order], offer([*gone, *further]))
    if second is AssetState.READY:
        assert set(allocation.assets) == set(further)
    else:
        assert set(allocation.generations.values()) == {3}
        assert allocation.created == allocation.assets


def test_a_reader_of_a_topic_requires_the_job_that_fills_it() -> None:
    pieces = {(blueprint.kind, blueprint.dataset): blueprint for blueprint in WANTED}
    job, index = pieces[AssetKind.JOB, "Spend"], pieces[AssetKind.INDEX, "Spend"]
    topic = pieces[AssetKind.TOPIC, "Spend"]
    assert set(index.requires) == {topic.content, job.content}
    assert set(job.requires) == {topic.content, pieces[AssetKind.TOPIC, "Clicks"].content}


@given(asset_stores(), st.sets(st.sampled_from([blueprint.content for blueprint in WANTED])))
@settings(max_examples=examples(200))
def test_settling_twice_is_settling_once(existing: tuple[Asset, ...], referenced: set[str]) -> None:
    first = settle(existing, referenced, {})
    assert not first.cancel
    again = settle(existing, referenced, first.open)
    assert not again.cancel
    assert not again.open
    for asset in existing:
        action = first.open.get(asset.id)
        if asset.id in referenced and asset.state is not AssetState.DESTROYING:
            assert action is not Action.DESTROY, "nothing is destroyed that anybody refers to"
        elif asset.state is not AssetState.GONE:
            assert action is Action.DESTROY


def test_a_new_reference_in_time_cancels_the_destruction() -> None:
    existing = [replace(asset, state=AssetState.READY) for asset in allocate(WANTED, ()).assets]
    sentenced = settle(existing, (), {}).open
    back = settle(existing, [asset.id for asset in existing], sentenced)
    assert back.cancel == frozenset(asset.id for asset in existing)
    assert not back.open


def test_a_further_generation_has_names_of_its_own() -> None:
    plan = plan_graph(GRAPH)
    gone = [replace(asset, state=AssetState.GONE) for asset in allocate(WANTED, ()).assets]
    allocation = allocate(WANTED, gone)
    assert set(allocation.generations.values()) == {2}
    further = apply_generations(plan, allocation.generations)
    assert [topic.name for topic in further.topics] == [f"{topic.name}.2" for topic in plan.topics]
    assert [job.job_id for job in further.jobs] == [f"{job.job_id}.2" for job in plan.jobs]
    names = {f"{AssetKind.INDEX}:{index.asset.hex()}" for index in further.indexes}
    assert names == {asset.id for asset in allocation.assets if asset.kind is AssetKind.INDEX}
    topics = {topic.name for topic in further.topics}
    read = {topic.name for job in further.jobs for topic in (*job.inputs, job.output)}
    assert read | {index.topic for index in further.indexes} | {i.topic.name for i in further.ingests} == topics
    assert apply_generations(plan, {}) is plan


def test_an_index_that_emits_is_another_one() -> None:
    plan = plan_graph(GRAPH)
    (index,) = [index for index in plan.indexes if index.dataset == "Spend"]
    emission = replace(plan.topics[0], name="caraway.Spend.emitted")
    emitting = replace(index, emits=emission)
    assert content_of(emitting) != content_of(index)
    (found,) = [b for b in blueprints(replace(plan, indexes=(emitting,))) if b.kind is AssetKind.INDEX]
    assert found.writes == (content_of(emission),)
    assert isinstance(found, Blueprint)
    assert apply_generations(replace(plan, indexes=(emitting,)), {found.content: 3}).indexes[0].asset != index.asset


@pytest.mark.parametrize("generation", [1, 2, 17])
def test_the_name_of_a_source_follows_from_that_of_its_asset(generation: int) -> None:
    plan = plan_graph(GRAPH)
    for position, ingest in enumerate(plan.ingests):
        contents = (content_of(ingest), content_of(ingest.topic))
        further = apply_generations(plan, dict.fromkeys(contents, generation)).ingests[position]
        asset = id_of(AssetKind.INGEST, contents[0].partition(":")[2], generation).partition(":")[2]
        assert source_name(asset) == content_of(further).partition(":")[2]
        assert source_name(asset).endswith(contents[0][-DEFINITION_DIGITS:])
