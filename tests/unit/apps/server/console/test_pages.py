"""Tests of the pages of the console: their structure, what each role sees of them, sign-in, forms, size and time."""

import json
import re
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote_plus, urlencode

import pytest

from caraway.apps.server.console.problems import problems_found
from caraway.apps.server.pages import archive, entities, why
from caraway.apps.server.pages.session import COOKIE, PageHeaders, code_of
from caraway.apps.server.pages.surface import PAGES
from caraway.dataplane.topics.letter_reader import Letter
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Metadata
from caraway.observations.observation import rows_of
from caraway.state.findings import FeatureCounts, Finding
from caraway.state.model import JobState
from caraway.state.profiles import Found
from tests.effort import examples
from tests.timeouts import scaled_now
from tests.unit.apps.server.asking import Headers
from tests.unit.apps.server.console import greenhouse
from tests.unit.apps.server.console.findings import SECRET_TOKEN
from tests.unit.apps.server.console.site import NOW, ROLES, Site, engine, job_of, site, whole

SOURCE = "[Webhook: garden](endpoint=pots)"
ROW = {"pot": "not a <number>", "species": "secret oak", "size": 1.5, "bought": "2026-01-01T00:00:00Z"}
LETTER = Letter(
    partition=0,
    offset=7,
    written_ms=1_700_000_000_000,
    key=b"key",
    body={
        "dataset": "Pots",
        "webhook": "garden",
        "endpoint": "pots",
        "reason": [{"field": "pot", "message": "expected int, found str"}],
        "row": ROW,
        "time": 1,
    },
)
# An address of each page, and a text that it shows.
ADDRESSES = {
    "/console": "What is wrong now",
    "/console/catalog": "State.species",
    "/console/catalog?q=oisture+b.co&kind=dataset": "Moisture",
    "/console/dataset?name=Pots": "Newest rows",
    "/console/dataset?name=Wetness": "join_pots",
    "/console/featureset?name=State": "advice",
    "/console/feature?name=State.advice": "def advise",
    "/console/feature?name=State.mean": "Spread of the values",
    "/console/feature?name=State.score": 'col("count")',
    "/console/feature?name=Species.mean": "Wetness",
    f"/console/source?name={quote(SOURCE)}": "Pots",
    "/console/lineage": "Choose where to start",
    "/console/lineage?node=dataset:Pots": "State.species",
    "/console/lineage?node=feature:Species.mean&depth=6": "Readings",
    "/console/lineage?name=State.score": "Lineage of State.score feature",
    "/console/dead-letters": "expected int, found str",
    "/console/dead-letter?name=0-7": "secret oak",
    "/console/branches": "The <first> commit",
    f"/console/commit?name={'a' * 32}": "Created all.",
    "/console/diff": "caraway preview",
    "/console/diff?from=main&to=dev": "1 removed",
    f"/console/diff?from={'a' * 32}&to={'b' * 32}": "1 removed",
    "/console/quality": "of 5 expectations are violated",
    "/console/quality?dataset=Readings": "Should pass",
    "/console/quality?dataset=Pots&hours=24": "secret oak",
    "/console/drift": "drifted",
    "/console/drift?feature=State": "Distances from the reference",
    "/console/drift?feature=State.species&hours=1&reference=week": "as before",
    "/console/drift?dataset=Readings": "delay_seconds",
    "/console/drift?dataset=Pots&hours=24&reference=previous": "the hours before",
    "/console/why": "Why has a feature its value?",
    "/console/why?feature=State.mean": "Tap.pot",
    "/console/jobs": "Engines, which run the jobs",
    "/console/archive": "not written yet",
    "/console/offline": "Nothing was asked yet",
    "/console/skew": "not yet indexed",
    "/console/skew?feature=State.species&hours=168": "late data",
    "/console/tokens": "account119",
    "/console/tokens?page=3": "account0",
    "/console/roles": "read-definition",
    "/console/audit": "<line 120>",
    "/console/audit?before=71": "<line 70>",
    "/console/query": "Try a query",
    "/console/query?outputs=State.species": "Tap.pot",
    "/console/sign-in": "Token",
}
# The pages that show data, those that show data only, and those for people who may do everything.
OF_DATA = {
    f"/console/{name}"
    for name in ("dead-letters", "dead-letter", "query", "quality", "drift", "why", "offline", "skew")
}
OF_ADMINISTRATORS = {"/console/tokens", "/console/roles", "/console/audit"}
FORM_CODE = re.compile(r'name="code" value="([0-9a-f]{64})"')


def guarded_site() -> Site:
    """Return a console with two jobs, an engine and a dead letter; datasets with pots are private."""
    found = site(greenhouse.graph(Pots=("pii",)), [LETTER])
    found.jobs += [job_of(found.plan, name) for name in ("Wetness", "Moisture")]
    found.engines.append(engine(alive=True))
    return found


@pytest.fixture
def console() -> Site:
    return guarded_site()


def address_of_job(console: Site) -> str:
    return f"/console/job?{urlencode({'name': console.jobs[0].job_id})}"


@pytest.mark.parametrize("address", [*ADDRESSES, "job"])
def test_a_page_is_whole(console: Site, address: str) -> None:
    expected = ADDRESSES.get(address, "join_pots")
    found = console.get(address_of_job(console) if address == "job" else address)
    assert expected in whole(found).text
    assert "<first>" not in found.text
    assert found.header("content-security-policy").startswith("default-src 'none'; style-src 'self'")
    assert "unsafe" not in found.header("content-security-policy")
    assert found.header("cache-control") == "no-store"
    assert COOKIE not in found.text


def test_every_page_has_an_address_here() -> None:
    others = {"/console/console.css", "/console/{name}", "/console/job", "/console/sink"}
    # The addresses of a sign-in send the browser on, to and from a provider of identities.
    others |= {"/console/sign-in/provider", "/console/signed-in"}
    tested = {address.partition("?")[0] for address in ADDRESSES}
    assert {page.path for page in PAGES if page.method == "GET"} == tested | others


def test_all_links_lead_to_a_page(console: Site) -> None:
    """Walk along the links; of those that differ by their parameters alone, along some."""
    waiting, seen, walked = ["/console"], {"/console"}, Counter[str]()
    while waiting:
        here = waiting.pop()
        path = here.partition("?")[0]
        if walked[path] == examples(50):
            continue
        walked[path] += 1
        for link in console.page(here).links:
            if link.startswith("/console") and link not in seen:
                seen.add(link)
                waiting.append(link)
    assert len(seen) > 150
    # Neither a token nor a value of a row is in an address.
    assert not any(word in unquote_plus(address) for address in seen for word in ("token=", "caraway_", *VALUES))


# Values of rows: of a dead letter, and of rows that failed an expectation.
VALUES = ("secret oak", "not a <number>", "-3.5")
# The words that the pages of a limited role must not have: names and contents of private definitions, and rows.
PRIVATE_NAMES = ("State.species", "species_of", "secret oak", "State.advice", "Wetness")


@pytest.mark.parametrize("address", [*ADDRESSES, "job"])
@pytest.mark.parametrize("role", ROLES)
def test_no_page_shows_what_its_token_may_not_see(console: Site, role: str, address: str) -> None:
    found = console.get(address_of_job(console) if address == "job" else address, role)
    path = address.partition("?")[0]
    if role in {"nothing", "writer", "elsewhere"} and path != "/console/sign-in":
        assert found.status == 403
    if role == "definitions":
        assert found.status == (403 if path in OF_DATA | OF_ADMINISTRATORS else 200)
    if role == "data":
        assert found.status == (200 if path in OF_DATA | {"/console/sign-in"} else 403)
    if path in OF_ADMINISTRATORS:
        assert found.status == (200 if role == "admin" else 403)
    page = whole(found, found.status)
    if role in {"nothing", "writer", "elsewhere", "definitions"}:
        assert "secret oak" not in found.text
    if role == "limited":
        # The words of the address itself may be said again.
        said = page.text.replace("'State.advice'", "").replace("'State.species'", "").replace("'Wetness'", "")
        said = (
            said.replace(repr(console.jobs[0].job_id), "")
            .replace("'feature:Species.mean'", "")
            .replace("'Species.mean'", "")
        )
        assert not [name for name in (*PRIVATE_NAMES, "Species.mean") if name in said]
        if address in {
            "/console/dataset?name=Pots",
            "/console/feature?name=State.advice",
            "/console/quality?dataset=Pots&hours=24",
            "/console/drift?feature=State.species&hours=1&reference=week",
            "job",
        }:
            assert found.status == 404
        if address == "/console/dead-letter?name=0-7":
            assert found.status == 403


def test_without_a_token_every_page_leads_to_sign_in(console: Site) -> None:
    for address in ADDRESSES:
        found = console.get(address, None)
        if address == "/console/sign-in":
            continue
        assert found.status == 303
        assert found.header("location") == f"/console/sign-in?{urlencode({'next': address})}"
    assert console.get("/console", "revoked").status == 303
    again = console.get("/console/dataset?name=Pots", None, **{"sec-fetch-site": "cross-site"})
    assert 'content="0; url=/console/dataset?name=Pots"' in again.text
    whole(again)


def test_a_cookie_has_the_id_of_a_session_that_scripts_and_other_sites_cannot_read(console: Site) -> None:
    done = console.post("/console/sign-in", {"token": " reader ", "next": "/console/catalog?q=a"}, None)
    assert (done.status, done.header("location")) == (303, "/console/catalog?q=a")
    cookie = done.header("set-cookie")
    assert cookie.startswith("caraway_session=session-of-reader; Path=/console; ")
    assert {"HttpOnly", "SameSite=Strict", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    tls = {"origin": "https://localhost", "host": "localhost"}
    over_tls = console.post("/console/sign-in", {"token": "reader"}, None, **tls)
    assert over_tls.header("set-cookie").startswith("__Host-caraway_session=session-of-reader; Path=/; Secure; ")
    # The cookie that only this host can have set counts, wherever it stands.
    for cookie in (
        "caraway_session=admin; __Host-caraway_session=nothing",
        "__Host-caraway_session=nothing; caraway_session=admin",
    ):
        assert console.get("/console", None, cookie=cookie).status == 403
    # A program gets nothing by the id of a session, and a browser nothing by a token in its cookie.
    assert console.send("GET", "/api/v1/status", b"", authorization="Session admin").status == 401
    for wrong in ("", "nobody", "a b", "x; Path=/", "é"):
        refused = console.post("/console/sign-in", {"token": wrong}, None)
        assert refused.header("set-cookie") == ""
        whole(refused, 401)
    for elsewhere in (
        "https://evil.example/console",
        "//evil.example/console",
        "/api/v1/status",
        "/console\\@evil",
        "/consolex",
        "/con\tsole",
        "/console\r\nSet-Cookie: a=b",
        "\t//evil.example/console",
    ):
        sent = console.post("/console/sign-in", {"token": "reader", "next": elsewhere}, None)
        assert sent.header("location") == "/console"


def test_signing_out_ends_the_session_of_its_own_form_only(console: Site) -> None:
    form = {"code": form_code(console, "reader")}
    assert console.post("/console/sign-out", {"code": form_code(console)}, "reader").status == 403
    assert console.accounts.ended == []
    done = console.post("/console/sign-out", form, "reader")
    assert (done.status, done.header("location")) == (303, "/console/sign-in")
    assert "Max-Age=0" in done.header("set-cookie")
    assert (console.accounts.ended, console.accounts.by) == (["reader"], ["reader"])
    # A made-up session gets no line in the audit log.
    code = code_of(Headers(cookie="caraway_session=made-up"))
    assert console.post("/console/sign-out", {"code": code}, "made-up").status == 303
    assert (console.accounts.ended, console.accounts.by) == (["reader"], ["reader"])


def form_code(console: Site, role: str = "admin") -> str:
    found = FORM_CODE.search(console.get("/console/query", role).text)
    assert found is not None
    return found[1]


def test_a_form_counts_only_from_a_page_of_the_same_session(console: Site) -> None:
    fields = {"name": "0-7", "row": "", "code": form_code(console)}
    for changed, given in (
        ({**fields, "code": ""}, {}),
        ({**fields, "code": form_code(console, "reader")}, {}),
        (fields, {"origin": "https://evil.example"}),
        (fields, {"origin": "null"}),
        (fields, {"sec-fetch-site": "cross-site"}),
        (fields, {"content-type": "text/plain"}),
    ):
        refused = console.post("/console/replay", changed, **given)
        assert refused.status in {403, 415}, (changed, given)
        whole(refused, refused.status)
    assert console.replays.claimed == []
    assert console.post("/console/replay", fields, "reader").status == 403


def test_a_dead_letter_is_repaired_and_replayed_once(console: Site) -> None:
    page = console.get("/console/dead-letter?name=0-7")
    assert "&lt;number&gt;" in page.text
    code = form_code(console)
    still = console.post("/console/replay", {"name": "0-7", "row": page.text and '{"pot": "x"}', "code": code})
    assert (still.status, "still doesn&#39;t fit" in still.text) == (400, True)
    row = '{"pot": 3, "species": "oak", "size": 1.5, "bought": "2026-01-01T00:00:00Z"}'
    for said in ("It was sent to Pots", "It was replayed before"):
        done = console.post("/console/replay", {"name": "0-7", "row": row, "code": code})
        assert (done.status, said in done.text) == (200, True), done.text
    assert console.replays.finished == ["0-7"]
    # The change of a page is written to the audit log as the request to the API is.
    assert console.recorded == ["replay"] * 3
    for wrong in ("{", "[1]", "3"):
        assert console.post("/console/replay", {"name": "0-7", "row": wrong, "code": code}).status == 400
    nameless = console.post("/console/replay", {"name": "", "row": row, "code": code})
    assert (nameless.status, "/console/replay needs a name" in nameless.text) == (400, True)
    assert console.get("/console/dead-letter?name=").status == 400


@pytest.mark.parametrize(("count", "pages"), [(8, 1), (50, 1), (51, 2), (101, 3)])
def test_older_dead_letters_are_promised_only_if_there_are_some(console: Site, count: int, pages: int) -> None:
    # The oldest one is of a dataset that no commit has, so nobody sees it.
    letters = [refused(number, "Readings", "pot", "is missing") for number in range(1, count + 1)]
    console.letters.letters = [refused(0, "Nowhere", "pot", "is missing"), *letters]
    addresses, shown = ["/console/dead-letters"], 0
    for address in addresses:
        links = console.page(address).links
        addresses += [link for link in links if "before=" in link]
        shown += sum(link.startswith("/console/dead-letter?") for link in links)
    assert (len(addresses), shown) == (pages, count)


def test_newest_rows_are_columns_since_datasets_have_many_fields(console: Site, monkeypatch: Any) -> None:
    async def newest(*_: object) -> tuple[list[list[str]], list[str]]:
        return [["2", "oak"], ["1", "fern"]], ["pot", "species"]

    monkeypatch.setattr(entities, "_sample", newest)
    assert "Field Row 1 Row 2 pot 2 1 species oak fern" in console.words("/console/dataset?name=Pots")


def test_a_path_of_the_archive_wraps_in_its_cell(console: Site, monkeypatch: Any) -> None:
    path = f"/data/{'archive/' * 10}Pots"
    monkeypatch.setattr(archive, "rows_of", lambda *given: [{**row, "url": path} for row in rows_of(*given)])
    assert f'<code class="long">{path}</code>' in console.get("/console/archive").text
    assert "td .long { " in console.get("/console/console.css").text


def test_an_empty_form_of_a_query_offers_examples(console: Site) -> None:
    examples = [link for link in console.page("/console/query").links if link.startswith("/console/query?outputs=")]
    assert "/console/query?outputs=State" in examples
    # No query can want the features of a featureset that computes nothing.
    assert "/console/query?outputs=Tap" not in examples
    assert '"Tap.pot"' in console.words(examples[0])
    assert "Fill the form" not in console.words(examples[0])


def test_a_query_is_answered_with_its_plan(console: Site) -> None:
    code = form_code(console)
    form = {"outputs": "State.species, State.mean", "rows": '{"Tap.pot": [1, 2]}', "code": code}
    page = console.post("/console/query", form)
    whole(page)
    assert page.text.count("<td>fern</td>") == 2
    assert "index read" in page.text
    for rows, status, said in (("{", 400, "JSON"), ("{}", 422, "Tap.pot"), ('{"Tap.pot": ["x"]}', 422, "Tap.pot")):
        failed = console.post("/console/query", {**form, "rows": rows})
        assert (failed.status, said in failed.text) == (status, True), failed.text
    refused = console.post("/console/query", {**form, "code": form_code(console, "limited")}, "limited")
    assert (refused.status, "fern" in refused.text) == (422, False)


def test_the_quality_of_a_dataset_is_a_chart_without_scripts(console: Site) -> None:
    listed = console.words("/console/quality")
    assert "2 of 5 expectations are violated" in listed
    assert " 100%, strict" in listed
    assert "are counted, and stay in the dataset" in console.get("/console/quality?dataset=Pots").text
    strict = console.get("/console/quality?dataset=Readings").text
    assert 'are <a href="/console/dead-letters?dataset=Readings">dead letters</a>, since it is strict' in strict
    page = console.get("/console/quality?dataset=Pots").text
    assert re.search(r'<path class="rate" d="M56[^"]*L[^"]*"/>', page)
    assert "<td>secret oak</td>" in page
    # Every seventh window lacks three of ten rows; each hour has twelve windows.
    assert re.search(r'<td class="figure">9[57]\.\d\d%</td><td class="figure">120</td>', page)
    assert console.get("/console/quality?dataset=Nowhere").status == 404
    # Without the right to a field, a sample lacks it, and so does its picture.
    assert "secret oak" not in console.get("/console/quality?dataset=Readings", "limited").text


def test_the_age_of_a_dataset_is_a_chart(console: Site) -> None:
    page = console.words("/console/dataset?name=Pots")
    assert "at most 1 min 30 s, at the end 30 ms" in page
    assert "at most 1 min 30 s, at 15:24" in page


def test_a_page_of_now_is_loaded_again_until_that_is_switched_off(console: Site) -> None:
    for address in ("/console", "/console/dataset?name=Pots", address_of_job(console), "/console/quality?dataset=Pots"):
        page = console.get(address)
        assert page.header("refresh") == "60", address
        off = next(link for link in whole(page).links if "refresh=off" in link)
        stays = console.get(off)
        assert (stays.status, stays.header("refresh"), "Load it again every 10 s" in stays.text) == (200, "", False)
        # The address says the rest as it did, and any page can be loaded by itself again.
        sooner = next(link for link in whole(stays).links if "refresh=10" in link)
        assert console.get(sooner).header("refresh") == "10"
        assert address.partition("?")[2] in sooner
    assert console.get("/console?refresh=1").status == 400
    # Nothing that somebody enters into a form is lost, and an error isn't asked for again and again.
    forms = ("/console/query", "/console/why", "/console/dead-letter?name=0-7", "/console/drift", "/console/tokens")
    for address in (*forms, "/console/dataset?name=Pot", "/console/query?refresh=10"):
        assert console.get(address).header("refresh") == "", address


def test_lags_rates_and_times_of_the_last_hours_are_lines(console: Site) -> None:
    at_most = r"Greatest lag of an index, from .* at most 40\.0 s, at the end 20 ms .*"
    rates = r"Queries that failed, .* at most 1 a second, at the end 0 a second .* took at most, .* at most 50 ms,"
    assert re.search(at_most + rates, console.words("/console"))
    assert "Wetness behind, from" in console.words("/console")
    for address, said in (
        ("/console/dataset?name=Pots", "Rows from its sources, from .* at most 20 a second"),
        ("/console/dataset?name=Wetness", "Lag of its index, from .* at most 40.0 s, at the end 20 ms"),
        ("/console/feature?name=Species.mean", "Age of the oldest data that it reads, .* at most 1 min 30 s"),
        ("/console/feature?name=Species.mean", "Extractions, from .* at most 15 a second"),
        (address_of_job(console), "Behind, .* at most 40.0 s, .*Rows, .* at most 18.5 a second"),
    ):
        assert re.search(said, console.words(address)), address
    # A page without lines yet says when there will be some.
    assert "Charts begin a few minutes after" in console.get("/console/feature?name=State.answer").text


def test_a_feature_shows_its_served_values_and_their_spread(console: Site) -> None:
    page = console.page("/console/feature?name=State.mean")
    # The profile has the numbers from 25 to 74, each forty times. Its sketch draws at random, so quantiles are near.
    assert re.search(r"Spread of the values, from 25 to 74: at most [4-8]\.\d\d% in one of 30 bars", page.text)
    assert re.search(r"50%: (4[789]|5[012])\b", page.text)
    for said in ("2,000 rows, 0.00% without a value", "Mean 49.5, standard deviation 14.4"):
        assert said in page.text, said
    texts = console.get("/console/feature?name=State.species").text
    assert ("secret oak (50.00%)" in texts, "elm (50.00%)" in texts, "Spread" in texts) == (True, True, False)
    assert "None has had this feature in these hours" in console.get("/console/feature?name=State.advice").text
    hidden = console.get("/console/feature?name=State.species", "definitions").text
    assert ("may not read values of this feature" in hidden, "secret oak" in hidden) == (True, False)
    assert console.recorded == []


def test_drift_is_shown_with_its_thresholds(console: Site) -> None:
    page = console.words("/console/drift?feature=State")
    assert re.search(r"State\.mean.*drifted.*2,000 rows.*psi.*0\.2", page)
    assert re.search(r"State\.species.*as before", page)
    limited = console.words("/console/drift", "limited")
    assert ("State.mean" in limited, "State.species" in limited) == (True, False)
    for wrong, status in (
        ("feature=Nowhere", 404),
        ("feature=State&reference=x", 400),
        ("feature=State&hours=x", 400),
        ("dataset=Nowhere", 404),
        ("dataset=Wetness", 400),
        ("dataset=Readings&reference=training", 400),
    ):
        assert console.get(f"/console/drift?{wrong}").status == status


def test_the_profile_of_a_dataset_is_shown_with_its_drift(console: Site) -> None:
    page = console.words("/console/drift?dataset=Readings")
    assert re.search(r"moisture drifted 2,000 0 .* 25 ", page)
    assert re.search(r"Distances from the reference .*mean .* 0\.4 ", page)
    assert 'href="/console/drift?dataset=Readings"' in console.get("/console/dataset?name=Readings").text
    everything = console.words("/console/drift")
    assert re.search(r"Readings ?\.moisture.*drifted.*Pots ?\.species", everything)
    # Datasets with pots are private.
    limited = console.words("/console/drift", "limited")
    assert ("Readings" in limited, "Pots" in limited) == (True, False)
    assert console.get("/console/drift?dataset=Readings", "limited").status == 200
    assert console.get("/console/drift?dataset=Pots", "limited").status == 404


def test_a_field_that_may_not_be_read_has_no_profile() -> None:
    graph = greenhouse.graph()
    hidden = Metadata(tags=("pii",))
    datasets = [
        replace(spec, fields=tuple(replace(f, metadata=hidden) if f.name == "moisture" else f for f in spec.fields))
        for spec in graph.datasets
    ]
    console = site(replace(graph, datasets=tuple(datasets)))
    for role, shows in (("admin", True), ("limited", False)):
        page = console.words("/console/drift?dataset=Readings", role)
        assert ("moisture" in page, "delay_seconds" in page) == (shows, True)
        everything = console.words("/console/drift", role)
        assert (re.search(r"Readings ?\.moisture", everything) is not None, "Readings" in everything) == (shows, True)


def test_an_explanation_has_an_address_without_values(console: Site) -> None:
    form = {"feature": "State.mean", "inputs": '{"Tap.pot": 1}', "at": "", "code": form_code(console)}
    sent = console.post("/console/why", form)
    assert re.fullmatch(r"/console/why\?request_id=[0-9a-f-]{36}", sent.header("location")), sent.text
    assert console.recorded == ["why"]
    shown = console.page(sent.header("location"))
    assert re.search(r"Value 0\.625 .* Checked yes : computed from its parts", shown.text)
    assert "just out: 2026-11-25T10:30:00Z" in shown.text
    # It is shown to the account that asked, and to those who may read all data.
    assert console.get(sent.header("location"), "reader").status == 200
    assert console.get(sent.header("location"), "limited").status == 403
    assert console.get(sent.header("location"), "definitions").status == 403
    for wrong, status in (
        ({"inputs": "{"}, 400),
        ({"inputs": "[1]"}, 422),
        ({"inputs": '{"Tap.pot": "x"}'}, 422),
        ({"feature": "State"}, 422),
        ({"at": "yesterday"}, 422),
        ({"code": ""}, 403),
    ):
        whole(console.post("/console/why", {**form, **wrong}), status)
    refused = console.post(
        "/console/why", {**form, "feature": "State.species", "code": form_code(console, "limited")}, "limited"
    )
    assert (refused.status, "secret" in refused.text) == (422, False)
    assert console.get("/console/why?request_id=nobody").status == 404


def test_an_explanation_that_is_not_ready_can_be_looked_at_again(
    console: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why, "WAIT_S", 0)
    console.explanations.is_busy = True
    form = {"feature": "State.mean", "inputs": '{"Tap.pot": 1}', "code": form_code(console)}
    address = console.post("/console/why", form).header("location")
    page = console.page(address)
    assert ("not ready yet" in page.text, address in page.links) == (True, True)
    console.explanations.is_busy = False
    console.explanations.wake()
    assert "Checked yes" in console.words(address)


def test_a_token_is_shown_once(console: Site) -> None:
    form = {"account": "new@example.com", "role": "reader", "days": "7", "note": "a test", "code": form_code(console)}
    made = console.post("/console/tokens", form)
    assert SECRET_TOKEN in whole(made).text
    assert made.header("cache-control") == "no-store"
    listed = console.get("/console/tokens")
    assert ("new@example.com" in listed.text, SECRET_TOKEN in listed.text) == (True, False)
    assert console.accounts.made[-1].roles == ("reader",)
    assert console.accounts.by == ["admin"]
    for wrong, status in (({"role": "none"}, 404), ({"days": "x"}, 400), ({"days": "0"}, 400), ({"code": ""}, 403)):
        whole(console.post("/console/tokens", {**form, **wrong}), status)
    assert len(console.accounts.made) == 121


def test_a_token_is_revoked_by_its_form(console: Site) -> None:
    form = {"name": console.accounts.made[5].id, "code": form_code(console)}
    assert "has ended" in console.post("/console/revoke", form).text
    assert console.accounts.made[5].revoked_at is not None
    assert console.post("/console/revoke", {**form, "name": "nobody"}).status == 404
    assert console.post("/console/revoke", {**form, "name": ""}).status == 404


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
def test_only_who_may_do_everything_changes_tokens(console: Site, role: str) -> None:
    code = code_of(Headers(cookie=f"caraway_session={role}"))
    made = console.post("/console/tokens", {"account": "me", "role": "admin", "code": code}, role)
    ended = console.post("/console/revoke", {"name": console.accounts.made[0].id, "code": code}, role)
    assert (made.status, ended.status) == (403, 403)
    assert "lacks" in made.text
    assert (len(console.accounts.made), console.accounts.made[0].revoked_at) == (120, None)


@pytest.mark.parametrize(("target", "name"), [("roll_back", "b" * 32), ("promote", "dev")])
def test_a_branch_is_changed_after_a_question(console: Site, target: str, name: str) -> None:
    form = {"target": target, "name": name, "code": form_code(console)}
    page = console.post("/console/preview", form)
    assert (page.status, "Pots: &lt;changed&gt;" in page.text) == (200, True)
    assert 'action="/console/change"' in page.text
    assert "Nothing was done yet" in page.text
    assert (console.rolled_back, console.recorded) == ([f"{name} True"], [target])
    done = console.post("/console/change", form)
    assert (done.status, f'href="/console/commit?name={"c" * 32}"' in done.text) == (200, True)
    assert (console.rolled_back, console.recorded) == ([f"{name} True", f"{name} False"], [target] * 2)
    for path in ("/console/preview", "/console/change"):
        assert console.post(path, {**form, "code": ""}).status == 403
        assert console.post(path, {**form, "code": form_code(console, "reader")}, "reader").status == 403
        assert console.post(path, {**form, "target": "erase"}).status == 400
    assert len(console.rolled_back) == 2


def test_a_job_is_paused_after_a_question_and_goes_on(console: Site) -> None:
    address, (job, *_) = address_of_job(console), console.jobs
    assert "Yes, pause this job" in console.words(address)
    form = {"name": job.job_id, "pause": "yes", "code": form_code(console)}
    assert console.post("/console/job/pause", {**form, "code": ""}).status == 403
    assert console.post("/console/job/pause", {**form, "code": form_code(console, "reader")}, "reader").status == 403
    assert console.post("/console/job/pause", {**form, "name": "other"}).status == 404
    assert not console.jobs[0].paused
    done = whole(console.post("/console/job/pause", form))
    assert (console.jobs[0].paused, console.recorded[-1:]) == (True, ["pause_job"])
    for said in ("The job is paused", "State paused", "Yes, let this job go on"):
        assert said in done.text, said
    assert f"The job of {job.dataset}.{job.pipeline} is paused" in console.words("/console")
    assert "goes on" in console.post("/console/job/pause", {**form, "pause": ""}).text
    assert not console.jobs[0].paused


def test_a_job_that_another_branch_shares_is_paused_by_those_who_may_there(console: Site) -> None:
    job = console.jobs[0].job_id
    form = {"name": job, "pause": "yes", "code": form_code(console, "here")}
    console.shared[f"job:{job}"] = frozenset({"main", "dev"})
    refused = console.post("/console/job/pause", form, "here")
    assert (refused.status, "shares this job" in refused.text, console.jobs[0].paused) == (403, True, False)
    console.shared[f"job:{job}"] = frozenset({"main"})
    assert console.post("/console/job/pause", form, "here").status == 200
    assert console.jobs[0].paused


def test_an_offline_query_is_cancelled_after_a_question(console: Site) -> None:
    console.explanations.is_busy = True
    console.post("/console/why", {"feature": "State.mean", "inputs": '{"Tap.pot": 1}', "code": form_code(console)})
    (name,) = console.explanations.queries
    page = console.words("/console/offline")
    assert name in page
    assert "Yes, end this query" in page
    form = {"name": name, "code": form_code(console)}
    assert console.post("/console/offline/cancel", {**form, "code": ""}).status == 403
    assert not console.explanations.get(name).cancelled
    assert "ends behind the part" in console.post("/console/offline/cancel", form).text
    assert console.explanations.get(name).cancelled
    assert "cancel_offline" in console.recorded
    assert name not in console.get("/console/offline", "limited").text


def test_differences_are_those_that_one_may_read(console: Site) -> None:
    address = "/console/diff?from=main&to=dev"
    assert "Wetness" in console.get(address).text
    limited = console.words(address, "limited")
    assert ("Wetness" in limited, "0 removed" in limited) == (False, True)
    for other in ("empty", "nowhere"):
        whole(console.get(f"/console/diff?from=main&to={other}"), 404)


def refused(number: int, dataset: str, field: str, message: str) -> Letter:
    body = {**LETTER.body, "dataset": dataset, "reason": [{"field": field, "message": message}]}
    body |= {"endpoint": dataset.lower(), "row": {"pot": number}}
    return replace(LETTER, offset=number, written_ms=LETTER.written_ms + number * 1_000, body=body)


def test_the_overview_says_what_was_found_in_rows_and_features(console: Site) -> None:
    """No page is green while rows were refused, expectations are violated, or features differ or drift."""
    console.letters.letters = [
        *(refused(number, "Readings", "pot", f"expected int, found str 'no {number}'") for number in range(306)),
        refused(400, "Readings", "moisture", "is missing; expected float"),
    ]
    shown = console.page("/console")
    assert "Nothing:" not in shown.text
    for text in (
        "Readings: 306 waiting dead letters: pot expected int, found str 'no 305'.",
        "Since 2023-11-14 22:13:20, ",
        "Readings: 1 waiting dead letter: moisture is missing; expected float.",
        "is violated; 126 of 2,880 rows failed so far.",
        "of 1,007 values that were served in the last day, some aren't as computed again: not yet indexed 110.",
        "State.mean has drifted: psi 1.25.",
        "Readings.moisture has drifted: mean 1.75.",
    ):
        assert text in shown.text, text
    assert shown.text.count("waiting dead letters") == 1
    # The title, which the tab of the browser has, says how many there are.
    assert shown.text.startswith("8 wrong: Overview")
    # Another commit's values, and those that differ only because rows came late, are no fault of now.
    assert "unknown 5" not in shown.text
    assert "State.species: of" not in shown.text
    for link in ("dead-letters?dataset=Readings", "quality?dataset=Readings", "drift?feature=State.mean"):
        assert f"/console/{link}" in shown.links
    answer = json.loads(console.get("/api/v1/problems", None, authorization="Bearer admin").text)
    assert [one["what"] for one in answer["problems"]][:2] == [
        "Readings: 306 waiting dead letters: pot expected int, found str 'no 305'.",
        "Readings: 1 waiting dead letter: moisture is missing; expected float.",
    ]
    # Somebody who may not read data isn't told that nothing was found in them.
    definitions = console.words("/console", "definitions")
    assert "no expectation is violated" not in definitions
    assert "they need read-data" in definitions
    limited = console.words("/console", "limited")
    assert ("Readings: 306 waiting dead letters" in limited, "Pots:" in limited) == (True, False)


def test_problems_with_the_same_remedy_are_one_card(console: Site) -> None:
    console.letters.letters = [
        refused(number, "Readings", name, "is missing") for number, name in enumerate(("pot", "moisture", "at", "day"))
    ]
    found = console.get("/console")
    whole(found)
    assert found.text.count("1 waiting dead letter") == 4
    assert found.text.count("Correct what sends such rows") == 1


def test_requests_are_named_by_their_addresses(console: Site) -> None:
    for path in ("/api/v1/status", "/api/v1/commit", "/health", "/nowhere"):
        console.get(path)
    words = console.words("/console").partition("Requests since this server started")[2]
    assert "GET /api/v1/status" in words
    assert "addresses that there aren't" in words
    assert "pages of this console" in words
    assert not re.search("health|console_|unknown|sync", words)


def test_engines_are_sentences(console: Site) -> None:
    console.engines.append(engine(alive=False, ago=timedelta(minutes=3)))
    assert "The engine here runs. The engine here ended 3 min ago." in console.words("/console")


def test_the_overview_is_green_once_nothing_is_wrong(console: Site) -> None:
    console.quality.violated = console.profiles.drifted = False
    console.drift.findings, console.skew.found = [], []
    assert "1 waiting dead letter" in console.words("/console")
    console.replays.finished.append(LETTER.id)
    shown = console.words("/console")
    assert "Nothing: all parts work" in shown
    assert "no expectation is violated, no dead letter waits, and no skew or drift was found" in shown


def test_what_can_not_be_looked_at_is_said(console: Site) -> None:
    def away(*_: object) -> list[Letter]:
        raise UnavailableError("Kafka doesn't answer")

    console.letters.newest = away  # type: ignore[method-assign, assignment]
    shown = console.words("/console")
    assert "The dead letters can't be looked at: Kafka doesn't answer." in shown
    # `caraway status` leaves out problems without a page, which are parts in its tables.
    (problem,) = problems_found({"dead letters": "Kafka doesn't answer"})
    assert problem.link == "/console/dead-letters?"
    assert "is violated" in shown


def test_a_page_names_the_engine_that_does_not_run(console: Site) -> None:
    """The way of a person who is on call: from the overview, and from the stale feature."""
    assert "No engine runs" not in console.words("/console")
    console.engines[0] = engine(alive=False, ago=timedelta(minutes=3, seconds=1))
    console.jobs[0] = job_of(console.plan, updated_at=datetime.now(UTC) - timedelta(minutes=3))
    for address in (
        "/console",
        "/console/feature?name=Species.mean",
        "/console/dataset?name=Wetness",
        address_of_job(console),
    ):
        text = console.words(address)
        assert re.search(
            r"No engine runs since \d\d:\d\d:\d\d UTC \(3 min( \d+ s)? ago\), so 2 jobs of Wetness, Moisture compute",
            text,
        ), address
        assert "caraway up" in text
    # A feature that no job computes is fresh.
    assert "Yes: all that it is computed from keeps up." in console.words("/console/feature?name=State.species")


def test_the_lineage_shows_what_is_stale(console: Site) -> None:
    page = console.page("/console/lineage")
    assert re.search(r"source .* dataset Pots 34 ms .* featureset State", page.text)
    assert "stale" not in page.text
    console.jobs[0] = job_of(console.plan, state=JobState.FAILING, error="no such topic", attempts=4)
    for address, stale in (
        ("/console/lineage", ("dataset Wetness stale", "featureset Species stale")),
        ("/console/lineage?node=dataset:Wetness", ("dataset Wetness stale", "feature Species.mean stale")),
    ):
        found = console.get(address)
        page = whole(found)
        assert all(words in page.text for words in stale), page.text
        assert page.text.count(" stale ") == 2
        assert 'aria-label="dataset Wetness stale"' in found.text
    limited = console.words("/console/lineage", "limited")
    assert ("Rules" in limited, "Pots" in limited, "Wetness" in limited) == (True, False, False)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"state": JobState.FAILING, "error": "no such topic <x>", "attempts": 4},
            "was started 4 times: no such topic <x>",
        ),
        ({"state": JobState.PENDING}, "doesn't run yet: it is pending"),
        ({"updated_at": NOW - timedelta(hours=2)}, "Nobody has reported on the job of Wetness.join_pots for 2 h"),
        ({"progress": {"lag_seconds": 90.0, "lag_records": 1234}}, "is 1 min 30 s behind: 1,234 records wait"),
    ],
)
def test_a_page_says_what_is_wrong_with_a_job(console: Site, more: dict[str, Any], said: str) -> None:
    console.jobs[0] = job_of(console.plan, **more)
    assert said in console.words("/console")
    assert said in console.words("/console/feature?name=Species.mean")


def test_an_error_is_a_page_with_a_remedy(console: Site) -> None:
    for address, status in (
        ("/console/dataset?name=Pot", 404),
        ("/console/nothing", 404),
        ("/console/lineage?node=dataset:Nowhere", 404),
        ("/console/lineage?name=Nowhere", 404),
        ("/console/lineage?node=dataset:Pots&depth=99", 400),
        ("/console/catalog?kind=colour", 400),
        ("/console/catalog?page=-1", 400),
        ("/console/dead-letter?name=x", 400),
    ):
        found = console.get(address)
        assert found.header("content-type") == "text/html; charset=utf-8"
        assert "/console" in whole(found, status).links
    assert "did you mean Pots" in console.get("/console/dataset?name=Pot").text


def test_a_branch_stays_in_the_addresses(console: Site) -> None:
    page = console.page("/console/catalog?branch=dev", "elsewhere")
    inside = [link for link in page.links if link.startswith("/console/dataset")]
    assert inside
    assert all("branch=dev" in link for link in inside)
    assert console.get("/console/catalog", "elsewhere").status == 403


def test_without_tokens_nobody_needs_to_sign_in() -> None:
    open_to_all = site(greenhouse.graph(), tokens=False)
    found = open_to_all.get("/console", None)
    assert (found.status, "Sign out" in found.text) == (200, False)
    tokens = open_to_all.get("/console/tokens", None)
    assert (tokens.status, "needs no tokens" in tokens.text) == (409, True)
    assert open_to_all.get("/console/audit", None).status == 200


@pytest.mark.full(reason="a graph of ten thousand features, which takes long to make; other tests check each page")
def test_the_pages_of_a_large_graph_are_small_and_quick() -> None:
    """1,000 datasets and 10,000 features: each page has less than 200 kB and takes less than 300 ms of a processor."""
    graph = greenhouse.large(1_000, 10_000)
    plan = plan_graph(graph)
    console = site(graph, plan=GraphPlan(checks=plan.checks, topics=plan.topics))
    names = [f"{spec.name}.{feature.name}" for spec in graph.featuresets for feature in spec.features]
    console.drift.findings = [
        Found(scope="main", column=name, distance="psi", value=0.5, drifted=name.endswith("7")) for name in names
    ]
    console.skew.found = [
        FeatureCounts(feature=name, commit="a" * 32, counts={Finding.SAME: 90, Finding.NOT_INDEXED: 10})
        for name in names
    ]
    console.letters.letters = [
        refused(number, f"Readings{number % 1_000:04}", "pot", f"expected int, found str 'no {number}'")
        for number in range(2_000)
    ]
    console.drift.served = dict.fromkeys(names, console.drift.served["State.mean"])
    console.drift.reference = dict.fromkeys(names, console.drift.reference["State.mean"])
    addresses = [
        "/console/quality",
        "/console/quality?page=10",
        "/console/quality?dataset=Readings0550&hours=720",
        "/console/drift",
        "/console/drift?feature=Set0555",
        "/console/drift?dataset=Readings0550",
        "/console/why?feature=Set0555.mean_of_the_moisture_3",
        "/console/diff?from=main&to=dev",
        "/console",
        "/console/catalog",
        "/console/catalog?q=moisture_3&page=20",
        "/console/dataset?name=Moisture0555",
        "/console/dataset?name=Readings0550",
        "/console/featureset?name=Set0555",
        "/console/feature?name=Set0555.mean_of_the_moisture_3",
        "/console/lineage",
        "/console/lineage?node=dataset:Readings0550&depth=6",
        "/console/lineage?node=feature:Set0555.mean_of_the_moisture_3",
        f"/console/source?name={quote('[Webhook: garden](endpoint=readings)')}",
        f"/console/lineage?node=source:{quote('[Webhook: garden](endpoint=readings)')}&depth=6",
        "/console/branches",
        "/console/query?outputs=Set0555",
        "/console/dead-letters",
    ]
    assert sum(len(check.suite.expectations) for check in console.plan.checks) == 1_000
    console.get("/console/lineage?node=dataset:Readings0550")
    for role in ("admin", "limited"):
        of_administrators = [*OF_ADMINISTRATORS, "/console/audit?before=100"] if role == "admin" else []
        for address in [*addresses, *of_administrators]:
            times = []
            for _ in range(3):
                started = time.process_time()
                found = console.get(address, role)
                times.append(time.process_time() - started)
            assert len(found.body) < 200_000, (address, len(found.body))
            # The pace is only measured, for a tenth of a second, if a page took long.
            assert min(times) < 0.3 or min(times) < scaled_now(0.3), (address, times)
            whole(found)


def test_pages_are_made_whatever_a_browser_accepts() -> None:
    accepted = Headers(accept="application/vnd.apache.arrow.stream", te="x")
    assert PageHeaders(accepted, "").get("accept") is None
    assert PageHeaders(accepted, "").get("te") == "x"
