"""The API leaves out what its token may not see, as the pages do: findings, ages and private definitions."""

import json
from base64 import b64decode, b64encode
from typing import Any

import pytest

from caraway.compute.profiles.tables import Profile
from caraway.state.findings import FeatureCounts, Finding
from tests.unit.apps.server.asking import Exchange
from tests.unit.apps.server.console.site import Site
from tests.unit.apps.server.console.test_pages import guarded_site

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
