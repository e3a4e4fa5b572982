"""The API leaves out what its token may not see, as the pages do: findings, ages and private definitions."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from caraway.apps.server.freshness.freshness import Freshness
from caraway.apps.server.handlers.offline import MAX_UNFINISHED
from caraway.compute.profiles.tables import Profile
from caraway.dataplane.sinks.sinks import SinkStatus
from caraway.dataplane.sources.sources import SourceStatus
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Metadata
from caraway.state.erasures import ErasedKey, ErasureRecord
from caraway.state.findings import FeatureCounts, Finding
from caraway.state.model import JobState
from tests.unit.apps.server.asking import Exchange
from tests.unit.apps.server.console import greenhouse
from tests.unit.apps.server.console.site import NOW, Site, job_of, site
from tests.unit.apps.server.console.test_pages import LETTER, guarded_site

# The source code of an extractor that may be read can have the name of a dataset that may not; it is left out here.
PROPERTIES = "name,metaflags,dsschema,field_metadata,tags,lineage_tags,sink_destination"


@pytest.fixture
def console() -> Site:
    return guarded_site()


def api(console: Site, path: str, role: str) -> Exchange:
    return console.get(f"/api/v1/{path}", None, authorization=f"Bearer {role}")


@pytest.mark.spec("featuresets:10:2")
@pytest.mark.parametrize(
    ("path", "public", "private"),
    [
        ("skew?samples=0", "State.mean", "State.species"),
        ("skew?samples=0", "State.mean", "Former.x"),
        ("skew?samples=0&feature=State", "State.mean", "State.species"),
        ("drift", "State.mean", "State.species"),
        ("drift/findings", "State.mean", "State.species"),
        ("freshness", '"Rules"', '"Pots"'),
        ("expectations", '"Readings"', '"Pots"'),
        (f"xray?properties={PROPERTIES}", "Rules", "Pots"),
        ("lineage", "Rules", "Pots"),
    ],
)
def test_what_is_private_is_left_out(console: Site, path: str, public: str, private: str) -> None:
    # Nobody knows the tags of a feature that isn't defined any more.
    console.skew.found.append(FeatureCounts(feature="Former.x", commit="a" * 32, counts={Finding.SAME: 1}))
    every, limited = (api(console, path, role) for role in ("admin", "limited"))
    assert (every.status, public in every.text, private in every.text) == (200, True, True), every.text
    assert (limited.status, public in limited.text, private in limited.text) == (200, True, False), limited.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        # A feature that may not be read is told from one that doesn't exist neither here nor in what is said of drift.
        ("skew?samples=0&feature=State.species", 404),
        ("drift?feature=State.species", 404),
        ("drift/profiles?feature=State.species", 403),
        ("drift/profiles?feature=State.nothing", 404),
        ("drift/datasets/Pots", 404),
        ("drift/datasets/Pots/profile", 404),
        ("freshness/history?dataset=Pots", 200),
        ("xray?datasets=Pots", 404),
        ("dataset/Pots/inspect", 403),
        ("dataset/Rules/inspect", 200),
    ],
)
def test_who_asks_for_what_is_private_gets_nothing(console: Site, path: str, status: int) -> None:
    answer = api(console, path, "limited")
    assert (answer.status, '"dataset":"Pots"' in answer.text) == (status, False), answer.text


def test_a_reference_is_set_by_who_may_change_all_its_features(console: Site) -> None:
    profiles = api(console, "drift/profiles?feature=State.mean", "limited").json
    assert list(Profile.from_bytes(b64decode(profiles["served"])).columns) == ["State.mean"]
    kept: list[tuple[Any, ...]] = []
    console.drift.set_references = lambda *given: kept.append(given)  # type: ignore[attr-defined]
    for names, status in ((["State.mean", "State.species"], 403), (["State.mean"], 200)):
        profile = Profile({name: console.drift.served[name] for name in names}).to_bytes()
        body = json.dumps({"profile": b64encode(profile).decode()}).encode()
        headers = {"authorization": "Bearer limited", "content-type": "application/json"}
        assert console.send("POST", "/api/v1/drift/reference", body, **headers).status == status
    ((branch, columns, by),) = kept
    assert (branch, [*columns], by) == ("main", ["State.mean"], "limited")


def test_an_account_has_so_many_unfinished_offline_queries(console: Site) -> None:
    def asked(path: str, body: dict[str, Any], role: str) -> Exchange:
        headers = {"authorization": f"Bearer {role}", "content-type": "application/json"}
        return console.send("POST", f"/api/v1/{path}", json.dumps(body).encode(), **headers)

    rows = {"Pandas": {"Tap.pot": [1], "at": ["2026-01-01T00:00:00Z"]}}
    query = {"input_features": ["Tap.pot"], "output_features": ["State.mean"], "timestamp_column": "at", "input": rows}
    explanation = {"feature": "State.mean", "inputs": {"Tap.pot": 1}, "wait": 0}
    console.explanations.is_busy = True
    for _ in range(MAX_UNFINISHED // 2):
        assert asked("query_offline", query, "reader").status == 200
        assert asked("why", explanation, "reader").status == 200
    written = len(console.explanations.objects)
    for path, body in (("query_offline", query), ("why", explanation)):
        answer = asked(path, body, "reader")
        assert (answer.status, answer.json["code"]) == (429, "busy")
        assert "50 offline queries and explanations of account 'reader' aren't over" in answer.text
        assert asked(path, body, "data").status == 200, "other accounts have their own"
    assert len(console.explanations.objects) == written + 2, "nothing is kept of what is refused"
    console.explanations.end(next(iter(console.explanations.queries)))
    assert asked("query_offline", query, "reader").status == 200


def source_of(plan: GraphPlan, dataset: str) -> SourceStatus:
    (topic,) = (topic.name for topic in plan.topics if topic.dataset == dataset)
    return SourceStatus(
        dataset=dataset,
        topic=topic,
        source=f"[Kafka: brokers](topic={dataset})",
        system="brokers",
        state="reading",
        owned=True,
        lag=0,
        rows=1,
    )


def sink_of(dataset: str) -> SinkStatus:
    return SinkStatus(
        dataset=dataset,
        sink_id=f"{dataset}.1",
        sink="[Kafka: brokers](topic=out)",
        target=f"out of {dataset}",
        system="brokers",
        state="writing",
        owned=True,
        guarantee="at least once",
        backlog=0,
    )


# The part of the answer of status, and the names of datasets and featuresets in it.
PARTS: Mapping[str, Callable[[dict[str, Any]], list[str]]] = {
    "datasets": lambda said: said["datasets"],
    "featuresets": lambda said: said["featuresets"],
    "topics": lambda said: [each["dataset"] for each in said["topics"]],
    "index": lambda said: [each["dataset"] for each in said["index"]["indexes"]],
    "sources": lambda said: [each["dataset"] for each in said["sources"]],
    "sinks": lambda said: [each["dataset"] for each in said["sinks"]],
    "jobs": lambda said: [each["dataset"] for each in said["jobs"]],
}


@pytest.mark.spec("featuresets:10:2")
@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_the_status_leaves_out_what_is_private(part: str) -> None:
    """Pots are private, and so is Wetness, which is computed from them, and Species, by a tag of its own."""
    graph = greenhouse.graph(Pots=("pii",))
    *others, species = graph.featuresets
    private = replace(species, metadata=replace(species.metadata, tags=("pii",)))
    found = site(replace(graph, featuresets=(*others, private)))
    found.jobs += [job_of(found.plan, name) for name in ("Wetness", "Moisture")]
    found.sources += [source_of(found.plan, name) for name in ("Readings", "Pots")]
    found.sinks += [sink_of("Moisture"), sink_of("Wetness")]
    found.shared |= {f"sink:{sink.sink_id}": frozenset({"main"}) for sink in found.sinks}
    every, limited = (set(PARTS[part](api(found, "status", role).json)) for role in ("admin", "limited"))
    hidden = {"Pots", "Wetness", "Species"}
    assert every & hidden
    assert limited == every - hidden != set()


@pytest.mark.parametrize("part", ["topics", "index", "sources", "sinks", "jobs"])
def test_who_gives_a_dataset_another_ones_name_learns_nothing_of_that_one(part: str) -> None:
    """Datasets of dev have the names of those of main, and nothing else of them."""
    found = site(greenhouse.graph(), namesakes=True)
    found.jobs += [job_of(found.plan, "Wetness")]
    found.sources += [source_of(found.plan, "Readings")]
    found.sinks += [sink_of("Moisture")]
    found.shared |= {"sink:Moisture.1": frozenset({"main"})}
    assert PARTS[part](api(found, "status", "here").json)
    assert PARTS[part](api(found, "status", "elsewhere").json) == []
    for asset in found.shared:
        found.shared[asset] = frozenset({"main", "dev"})
    assert PARTS[part](api(found, "status", "elsewhere").json)


def test_what_a_dataset_waits_for_is_told_by_the_jobs_of_the_branch() -> None:
    """A job of another branch may write a dataset of the same name, and fail with a text that is about its rows."""
    waits = Freshness(
        dataset="Wetness", seconds=9.0, delay_seconds=0.1, served_until=0.0, waits_for="the job of Wetness"
    )
    found = site(greenhouse.graph(), freshness=SimpleNamespace(of=lambda _plan: [waits]))
    failing = {"state": JobState.FAILING, "error": "fails here"}
    found.jobs += [job_of(found.plan, "Wetness", **{**failing, "job_id": "of dev", "error": "fails elsewhere"})]
    for job, told in ((None, "the job of Wetness"), (job_of(found.plan, "Wetness", **failing), "fails here")):
        found.jobs += [] if job is None else [job]
        (answer,) = api(found, "freshness", "here").json["datasets"]
        assert (told in answer["waits_for"], "elsewhere" in answer["waits_for"]) == (True, False)


def test_the_archive_s_tables_are_those_of_datasets_that_may_be_seen(console: Site) -> None:
    every, limited = (
        {table["dataset"] for table in api(console, "archive", role).json["tables"]} for role in ("admin", "limited")
    )
    assert {"Pots", "Wetness"} < every
    assert limited == every - {"Pots", "Wetness"}
    assert {"Readings", "Rules"} < limited


def erased(dataset: str) -> ErasureRecord:
    key = ErasedKey(
        request="r",
        branch="main",
        dataset=dataset,
        topic=f"topic-of-{dataset}",
        columns=("pot",),
        key_id="k",
        digest=b"d",
        account="ada",
        token_id="t",
    )
    return ErasureRecord(id=1, key=key, asked_at=NOW, recorded_at=NOW)


def test_erasures_are_told_to_who_may_see_their_dataset(console: Site) -> None:
    console.erasures += [erased("Pots"), erased("Rules")]
    for dataset in ("Pots", "Rules"):
        every, limited = (api(console, f"dataset/{dataset}/erasures", role) for role in ("admin", "limited"))
        assert (every.status, f"topic-of-{dataset}" in every.text) == (200, True), every.text
        shown = dataset == "Rules"
        assert (limited.status, "topic-of-" in limited.text) == (200 if shown else 403, shown), limited.text


def test_dead_letters_are_listed_and_shown_to_who_may_read_their_rows() -> None:
    """Two letters are of endpoints, and one is of a step: it shows a row of what the step has read."""
    graph = greenhouse.graph(Pots=("pii",))
    job = job_of(plan_graph(graph)).job_id
    rule = {"dataset": "Rules", "webhook": "garden", "endpoint": "rules", "row": {"species": "public fern"}}
    step = {"dataset": "Wetness", "row": {"species": "secret oak"}, "step": "join_pots", "job": job}
    letters = [LETTER, replace(LETTER, offset=8, body={**LETTER.body, **rule}), replace(LETTER, offset=9, body=step)]
    found = site(graph, letters)
    for role, names in (("admin", ["0-9", "0-8", "0-7"]), ("limited", ["0-8"])):
        assert [letter["id"] for letter in api(found, "dead_letters", role).json["dead_letters"]] == names
    for name in ("0-7", "0-8", "0-9"):
        every, limited = (api(found, f"dead_letters/{name}", role) for role in ("admin", "limited"))
        private = name != "0-8"
        assert (every.status, "public fern" in every.text) == (200, not private), every.text
        assert (limited.status, "public fern" in limited.text) == (403 if private else 200, not private), limited.text
        assert "secret oak" not in limited.text


def test_a_dead_letter_of_a_step_is_for_who_may_read_all_that_the_step_has_read() -> None:
    """Wetness has no column that is computed from the private size of a pot, but the step's row has the size."""
    graph = greenhouse.graph()
    pots = next(spec for spec in graph.datasets if spec.name == "Pots")
    fields = tuple(replace(f, metadata=Metadata(tags=("pii",))) if f.name == "size" else f for f in pots.fields)
    graph = replace(graph, datasets=tuple(replace(d, fields=fields) if d is pots else d for d in graph.datasets))
    step = {"dataset": "Wetness", "row": {"size": 8765.4}, "step": "join_pots", "job": job_of(plan_graph(graph)).job_id}
    found = site(graph, [replace(LETTER, body=step)])
    assert "Wetness" in api(found, "status", "limited").json["datasets"]
    every, limited = (api(found, "dead_letters", role).json["dead_letters"] for role in ("admin", "limited"))
    assert ([letter["id"] for letter in every], limited) == (["0-7"], [])
    every_one, limited_one = (api(found, "dead_letters/0-7", role) for role in ("admin", "limited"))
    assert ("8765.4" in every_one.text, limited_one.status) == (True, 403)


@pytest.mark.parametrize(("source", "status"), [("dev", 403), ("a" * 32, 404), ("a" * 4, 404), ("empty", 404)])
def test_a_promotion_takes_the_branch_that_was_checked_and_no_commit(console: Site, source: str, status: int) -> None:
    """A commit by its id is of no branch, so no tags would be checked for it."""
    headers = {"authorization": "Bearer limited", "content-type": "application/json"}
    body = json.dumps({"source": source}).encode()
    answer = console.send("POST", "/api/v1/branch/promote", body, **headers)
    assert (answer.status, console.rolled_back) == (status, []), answer.text
