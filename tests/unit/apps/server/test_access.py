"""Tests of the gate and the limits: each kind of request has a need, and no kind leads around a tag."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from caraway.apps.server.access.gate import LONGEST, MAX_REFUSALS, Gate
from caraway.apps.server.access.limits import AccessLimits, LimitedQueries, Tags, readable
from caraway.apps.server.access.sharing import Sharing
from caraway.apps.server.http.endpoints import ADMINISTRATION, Endpoint, Scope
from caraway.apps.server.http.messages import HttpResponse, Request, text_response
from caraway.apps.server.pages.surface import PAGES
from caraway.apps.server.surface import ENDPOINTS
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.compute.query.model import Instants, QueryReader
from caraway.errors import ForbiddenError, UnauthenticatedError, UnavailableError
from caraway.graph.lineage_graph import lineage_of
from caraway.graph.plan.model import GraphPlan
from caraway.graph.specs import Graph
from caraway.state.access import AccessList, TokenOwner, digest_of
from caraway.state.audit import Act
from caraway.state.permissions import ANYBODY, Caller, Grant, Mode
from caraway.state.plans import Planned
from tests.effort import examples
from tests.unit.apps.server.asking import Headers
from tests.unit.compute.query.garden import tagged

NO_AUDIT: Any = SimpleNamespace()
NO_GRAPHS: Any = SimpleNamespace()
BY_TARGET = {endpoint.target: endpoint for endpoint in ENDPOINTS}


async def done(request: Request) -> HttpResponse:
    return text_response(request.path)


def test_an_endpoint_without_a_permission_can_not_be_written() -> None:
    unguarded: Any = Endpoint
    with pytest.raises(TypeError, match="permission"):
        unguarded("GET", "/somebody/forgot", done)


def test_what_is_changed_is_recorded() -> None:
    # Changes of tokens have their line of the audit log in their own transaction (tests/integration/state).
    changes = {
        each.target
        for each in ENDPOINTS
        if Mode.WRITE_DEFINITION in each.permission.modes and each.permission is not ADMINISTRATION
    } - {"wait"}
    # These are exceptions: a secret that was read can be used elsewhere, an offline query takes a great many rows out,
    # and its end keeps others from them, a replay writes rows that were refused once, and an explanation shows single
    # events of somebody.
    private = {"erase", "replay", "get_secret", "add_secret", "update_secret", "delete_secret"}
    private |= {"extract_historical_features", "cancel_offline", "why"}
    assert changes | private == {each.target for each in ENDPOINTS if each.recorded}


def gate(**owners: TokenOwner) -> Gate:
    found = AccessList(1, {digest_of(token): owner for token, owner in owners.items()})
    made: Any = SimpleNamespace(list_now=lambda _known: found)
    ready = Gate(NO_AUDIT, made, clock=lambda: 1_000_000.0)
    ready.refresh()
    return ready


def owner(*grants: Grant) -> TokenOwner:
    return TokenOwner(Caller(account="ada", token_id="t1", grants=grants), None)


def test_without_tokens_everybody_may_do_everything() -> None:
    assert Gate(NO_AUDIT, None).admit(BY_TARGET["sync"], Headers()) is ANYBODY


def test_before_the_tokens_are_known_nobody_is_let_in() -> None:
    unread: Any = SimpleNamespace()
    with pytest.raises(UnavailableError, match="doesn't know the tokens"):
        Gate(NO_AUDIT, unread).admit(BY_TARGET["log"], Headers(authorization="Bearer x"))


@pytest.mark.parametrize("header", [None, "", "x", "Basic x", "Bearer", "Bearer ", "Bearer y", "Bearer x y"])
def test_only_a_valid_token_is_let_in(header: str | None) -> None:
    ready = gate(x=owner(Grant(modes=frozenset(Mode))))
    assert ready.admit(BY_TARGET["log"], Headers(authorization="bearer x")).account == "ada"
    with pytest.raises(UnauthenticatedError, match=r"`caraway tokens create` makes one, .* run/token of its data"):
        ready.admit(BY_TARGET["log"], Headers(**({} if header is None else {"authorization": header})))


def test_who_was_admitted_is_looked_up_once_until_tokens_or_roles_change() -> None:
    lists, log, headers = [AccessList(1, {})], BY_TARGET["log"], Headers(authorization="Bearer x")
    made: Any = SimpleNamespace(list_now=lambda _known: lists[-1])
    now = [1_000_000.0]
    audit: Any = SimpleNamespace(refusals=lambda _counted: None)
    ready = Gate(audit, made, clock=lambda: now[0])

    def change(*grants: Grant, seconds: float = 60.0) -> None:
        known = replace(owner(*grants), expires_at=datetime.fromtimestamp(now[0] + seconds, UTC))
        lists.append(AccessList(len(lists) + 1, {digest_of("x"): known}))
        ready.refresh()

    change(Grant(modes=frozenset({Mode.WRITE_DATA}), branches=frozenset({"main"})))
    first = ready.admit(log, headers)
    assert ready.admit(log, headers) is first
    for target, more in (("log", {"x-caraway-branch": "dev"}), ("sync", {})):
        with pytest.raises(ForbiddenError):
            ready.admit(BY_TARGET[target], Headers(authorization="Bearer x", **more))
    change(Grant(modes=frozenset({Mode.READ_DATA})))
    with pytest.raises(ForbiddenError):
        ready.admit(log, headers)
    change(Grant(modes=frozenset(Mode)), seconds=5.0)
    ready.admit(log, headers)
    now[0] += 5.0
    with pytest.raises(UnauthenticatedError):
        ready.admit(log, headers)


def test_a_change_while_a_request_is_admitted_is_not_missed_by_the_next_one() -> None:
    every = AccessList(1, {digest_of("x"): owner(Grant(modes=frozenset(Mode)))})
    lists = [every]

    class Changed(dict[bytes, TokenOwner]):
        """The tokens, which are revoked just after a request has read them."""

        def get(self, key: bytes, default: Any = None) -> Any:
            found = super().get(key, default)
            lists.append(AccessList(2, {}))
            ready.refresh()
            return found

    made: Any = SimpleNamespace(list_now=lambda _known: lists[-1])
    ready = Gate(NO_AUDIT, made, clock=lambda: 1_000_000.0)
    lists[0] = replace(every, owners=Changed(every.owners))
    ready.refresh()
    headers = Headers(authorization="Bearer x")
    ready.admit(BY_TARGET["log"], headers)
    with pytest.raises(UnauthenticatedError):
        ready.admit(BY_TARGET["log"], headers)


def test_a_token_ends() -> None:

    end = datetime.fromtimestamp(1_000_000.0, UTC)
    for until, valid in ((end + timedelta(seconds=1), True), (end, False)):
        ready = gate(x=replace(owner(Grant(modes=frozenset(Mode))), expires_at=until))
        if valid:
            ready.admit(BY_TARGET["log"], Headers(authorization="Bearer x"))
        else:
            with pytest.raises(UnauthenticatedError):
                ready.admit(BY_TARGET["log"], Headers(authorization="Bearer x"))


@pytest.mark.parametrize("target", BY_TARGET)
def test_a_mode_opens_what_needs_it_and_nothing_else(target: str) -> None:
    need = BY_TARGET[target].permission
    for mode in Mode:
        ready = gate(x=owner(Grant(modes=frozenset({mode}), branches=frozenset({"dev"}))))
        for branch in ("main", "dev"):
            headers = Headers(**{"authorization": "Bearer x", "x-caraway-branch": branch})
            opened = not need.modes or (
                not need.every
                and mode in need.modes
                and (need.scope is Scope.ANY_BRANCH or (need.scope is Scope.BRANCH and branch == "dev"))
            )
            if opened:
                ready.admit(BY_TARGET[target], headers)
            else:
                with pytest.raises(ForbiddenError, match="'ada'"):
                    ready.admit(BY_TARGET[target], headers)


@pytest.mark.parametrize(
    ("grant", "opened"),
    [
        (Grant(modes=frozenset({Mode.READ_DATA})), True),
        (Grant(modes=frozenset({Mode.WRITE_DATA})), False),
        (Grant(modes=frozenset(Mode), branches=frozenset({"main"})), False),
        (Grant(modes=frozenset(Mode), tags=frozenset({"a"})), False),
        (Grant(modes=frozenset(Mode), without=frozenset({"a"})), False),
    ],
)
def test_a_secret_needs_the_mode_on_everything(grant: Grant, *, opened: bool) -> None:
    assert BY_TARGET["get_secret"].permission.admits(owner(grant).caller, "main") is opened


def test_a_token_without_a_role_opens_the_metrics_and_what_is_public_only() -> None:
    opened = {
        (each.method, each.path)
        for each in (*ENDPOINTS, *PAGES)
        if not each.permission.public and each.permission.admits(owner().caller, "main")
    }
    assert opened == {("GET", "/metrics"), ("GET", "/api/v1/metrics")}


EVERY = Grant(modes=frozenset(Mode))


@pytest.mark.parametrize(
    ("grants", "opened"),
    [
        ([EVERY], True),
        ([Grant(modes=frozenset({mode})) for mode in Mode], True),
        ([Grant(modes=frozenset({mode})) for mode in list(Mode)[1:]], False),
        ([replace(EVERY, branches=frozenset({"main"}))], False),
        ([replace(EVERY, tags=frozenset({"a"}))], False),
        ([replace(EVERY, without=frozenset({"a"}))], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("target", ["list_tokens", "create_token", "revoke_token", "list_roles", "list_audit"])
def test_tokens_are_for_those_who_may_do_everything(target: str, grants: list[Grant], *, opened: bool) -> None:
    assert BY_TARGET[target].permission.admits(owner(*grants).caller, "main") is opened


def test_refusals_are_written_down_counted() -> None:
    written: list[Mapping[Any, int]] = []
    found = AccessList(1, {digest_of("x"): owner()})
    access: Any = SimpleNamespace(list_now=lambda _known: found)
    audit: Any = SimpleNamespace(refusals=written.append)
    ready = Gate(audit, access)
    ready.refresh()

    async def refuse() -> HttpResponse:
        raise ForbiddenError("not this feature")

    for _ in range(3):
        with pytest.raises(ForbiddenError):
            ready.admit(BY_TARGET["log"], Headers(authorization="Bearer x"))
    request = Request("POST", "/", "", Headers(), b"", owner().caller)
    with pytest.raises(ForbiddenError):
        asyncio.run(ready.pass_on(BY_TARGET["extract_features"], request, refuse))
    ready.refresh()
    ready.refresh()
    (counts,) = written
    assert {(act.account, act.action): times for (act, _), times in counts.items()} == {
        ("ada", "log"): 3,
        ("ada", "extract_features"): 1,
    }


def test_refusals_that_could_not_be_written_are_written_later() -> None:
    written: list[Mapping[Any, int]] = []
    away = True

    def write(counts: Mapping[Any, int]) -> None:
        if away:
            # Another request is refused during the write.
            ready.refuse(caller, "log", "main", ForbiddenError("no"))
            raise UnavailableError("postgres is away")
        written.append(dict(counts))

    audit: Any = SimpleNamespace(refusals=write)
    ready = Gate(audit, None)
    caller = owner().caller
    for action in ("log", "log", "commit"):
        ready.refuse(caller, action, "main", ForbiddenError("no"))
    with pytest.raises(UnavailableError):
        ready.refresh()
    # More kinds of refusals than are kept come meanwhile; the earlier ones aren't lost for them.
    for number in range(MAX_REFUSALS):
        ready.refuse(caller, f"action {number}", "main", ForbiddenError("no"))
    ready.refuse(caller, "log", "main", ForbiddenError("no"))
    with pytest.raises(UnavailableError):
        ready.refresh()
    away = False
    # The end of the server writes the rest, too.
    ready.stop()
    (counts,) = written
    times = {act.action: number for (act, _), number in counts.items()}
    assert (len(times), times["log"], times["commit"]) == (MAX_REFUSALS, 5, 1)


def test_what_is_recorded_begins_before_it_is_done_and_ends_with_its_outcome() -> None:
    told: list[object] = []

    def begin(act: Act) -> int:
        told.append(act.action)
        return 7

    audit: Any = SimpleNamespace(begin=begin, end=lambda number, outcome: told.append((number, outcome)))

    async def carried_out() -> HttpResponse:
        told.append("action")
        return text_response("done")

    async def refused() -> HttpResponse:
        raise ForbiddenError("no")

    ready, request = Gate(audit, None), Request("POST", "/", "", Headers(), b"")
    asyncio.run(ready.pass_on(BY_TARGET["sync"], request, carried_out))
    with pytest.raises(ForbiddenError):
        asyncio.run(ready.pass_on(BY_TARGET["sync"], request, refused))
    assert told == ["sync", "action", (7, "done"), "sync", (7, "forbidden")]


@pytest.mark.parametrize(
    ("target", "path", "query", "detail"),
    [
        ("get_secret", "secret/stripe", "", "secret/stripe"),
        ("get_secret", "secret/stripe", "x", "secret/stripe?x"),
        ("erase", "dataset/Users/erase", "x" * LONGEST, f"dataset/Users?{'x' * LONGEST}"[:LONGEST]),
        ("replay", "dead_letters/0-17/replay", "x", "dead_letters/0-17?x"),
        ("sync", "commit", "preview=true", "preview=true"),
    ],
)
def test_no_query_string_hides_from_the_audit_log_what_was_asked_for(
    target: str, path: str, query: str, detail: str
) -> None:
    written: list[Act] = []
    audit: Any = SimpleNamespace(begin=written.append, end=lambda *_: None)
    endpoint = BY_TARGET[target]
    request = Request(endpoint.method, f"/api/v1/{path}", query, Headers(), b"")
    asyncio.run(Gate(audit, None).pass_on(endpoint, request, lambda: done(request)))
    assert [act.detail for act in written] == [detail]


class Nothing(QueryReader):
    """An index without rows."""

    def read(
        self, dataset: str, keys: Sequence[tuple[object, ...]], at_us: Instants, columns: Sequence[str], /
    ) -> tuple[list[list[object]], list[bool]]:
        del dataset, at_us
        return [[None] * len(keys) for _ in columns], [False] * len(keys)


def limited(graph: Graph, *grants: Grant) -> LimitedQueries:
    caller = Caller(account="ada", token_id="t", grants=grants)
    return LimitedQueries(QueryEngine(Catalog("v", graph), Nothing()), Tags.of(graph), caller, "main")


READ = frozenset({Mode.READ_DATA})
NO_PII = Grant(modes=READ, without=frozenset({"pii"}))


@pytest.mark.parametrize(
    ("feature", "refused_for"),
    [
        ("State.species", "State.species"),
        # The extractor reads a dataset that may be read, and an intermediate feature that may not.
        ("State.advice", "State.species"),
        ("State.big", "State.size"),
    ],
)
def test_a_refused_query_names_what_it_may_not_touch(feature: str, refused_for: str) -> None:
    with pytest.raises(ForbiddenError, match=refused_for):
        limited(tagged(Pots=("pii",)), NO_PII).plan(["Tap.pot"], [feature])


def test_a_lookup_needs_the_fields() -> None:
    graph = tagged(Pots__size=("pii",))
    queries = limited(graph, NO_PII)
    assert queries.lookup("Pots", [{"pot": 1}], ["species"])[0] == [False]
    for wanted in (["size"], []):
        with pytest.raises(ForbiddenError, match=r"Pots\.size"):
            queries.lookup("Pots", [{"pot": 1}], wanted)
    with pytest.raises(ForbiddenError, match=r"Pots\.size"):
        queries.plan(["Tap.pot"], ["State.size"])
    queries.plan(["Tap.pot"], ["State.species"])


@settings(max_examples=examples(20), deadline=None)
@given(
    st.dictionaries(st.sampled_from(["Pots", "Rules", "Moisture"]), st.sampled_from([("a",), ("b",), ("a", "b")])),
    st.sampled_from(["State.species", "State.mean", "State.advice", "State.score", "State.answer"]),
    st.none() | st.frozensets(st.sampled_from(["a", "b"]), min_size=1),
    st.frozensets(st.sampled_from(["a", "b"])),
)
@example({"Pots": ("a",)}, "State.advice", None, frozenset({"a"}))
@example({"Pots": ("a",)}, "State.score", None, frozenset({"a"}))
def test_a_query_is_allowed_exactly_if_each_entity_is(
    tags: dict[str, tuple[str, ...]], feature: str, only: frozenset[str] | None, without: frozenset[str]
) -> None:
    """Compare with an oracle that goes through the graph by hand, to the dataset of each entity on the way."""
    # The key of the lookups, which is an alias of the caller's input, comes from no dataset.
    key = set[str]()
    comes_from: dict[str, list[set[str]]] = {
        "State.species": [key, {"Pots"}],
        "State.mean": [key, {"Moisture"}],
        "State.advice": [key, {"Pots"}, {"Pots", "Rules"}, {"Rules"}],
        "State.score": [key, {"Moisture"}],
        "State.answer": [set()],
    }
    graph = tagged(**tags)
    queries = limited(graph, Grant(modes=READ, tags=only, without=without))
    found = [{tag for name in names for tag in tags.get(name, ())} for names in comes_from[feature]]
    allowed = all((only is None or only & of) and not without & of for of in found)
    # The second time, the plan is known.
    for _ in range(2):
        if allowed:
            queries.plan(["Tap.pot"], [feature])
        else:
            with pytest.raises(ForbiddenError):
                queries.plan(["Tap.pot"], [feature])


def test_definitions_that_a_caller_may_not_read_are_left_out() -> None:
    graph = tagged(Pots=("pii",), Readings__moisture=("secret",))
    grant = Grant(modes=frozenset({Mode.READ_DEFINITION}), without=frozenset({"pii", "secret"}))
    found = readable(graph, Tags.of(graph), Caller(account="a", token_id="t", grants=(grant,)), "main")
    fields = {spec.name: [field.name for field in spec.fields] for spec in found.datasets}
    assert "Pots" not in fields
    assert fields["Readings"] == ["pot", "at"]
    features = {f"{spec.name}.{feature.name}" for spec in found.featuresets for feature in spec.features}
    assert {"State.species", "State.advice", "ByText.species", "State.mean"}.isdisjoint(features)
    assert {"State.count", "Tap.pot"} <= features
    shown = lineage_of(found)
    names = {node.name for node in shown.nodes}
    assert {"Pots", "State.species", "State.advise"}.isdisjoint(names)
    columns = {column for edge in shown.edges for pair in edge.columns for column in pair}
    assert {"species", "moisture"}.isdisjoint(columns)
    everything = Caller(account="a", token_id="t", grants=(Grant(modes=frozenset({Mode.READ_DEFINITION})),))
    assert readable(graph, Tags.of(graph), everything, "main") == graph
    other = Caller(account="a", token_id="t", grants=(replace(grant, branches=frozenset({"dev"})),))
    assert readable(graph, Tags.of(graph), other, "main") == Graph()


def with_secret_extractor(graph: Graph, *tags: str) -> Graph:
    """Return a graph whose extractor State.advise has tags of its own, which its features don't inherit."""
    featuresets = [
        replace(
            spec,
            extractors=tuple(
                replace(each, metadata=replace(each.metadata, tags=tags)) if each.name == "advise" else each
                for each in spec.extractors
            ),
        )
        for spec in graph.featuresets
    ]
    return replace(graph, featuresets=tuple(featuresets))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("graph", "hidden", "modes"),
    [
        (tagged(Pots=("pii",)), "Pots", Mode),
        (with_secret_extractor(tagged(), "pii"), "extractor State.advise", Mode),
        (tagged(Pots__size=("pii",)), "Pots.size", (Mode.READ_DEFINITION, Mode.READ_DATA)),
    ],
)
def test_a_copy_of_a_branch_holds_only_what_the_tags_allow(
    graph: Graph, hidden: str, modes: Sequence[Mode], mode: Mode
) -> None:
    """Clones and promotions take all of a branch, and a rollback all of a commit, whatever is left out of answers."""
    limits, held = AccessLimits(NO_GRAPHS), Planned(graph=graph, plan=GraphPlan())
    limits.check_branch(owner(EVERY).caller, (mode,), "main", {"a": held})
    limits.check_branch(owner(replace(EVERY, without=frozenset({"b"}))).caller, (mode,), "main", {"a": held})
    caller = owner(replace(EVERY, without=frozenset({"pii"}))).caller
    if mode in modes:
        with pytest.raises(ForbiddenError, match=f"lacks {mode} on branch 'main' for: .*{hidden}"):
            limits.check_branch(caller, (mode,), "main", {"a": held})
    with pytest.raises(ForbiddenError, match=f"lacks read-definition on branch 'main' for: .*{hidden}"):
        Sharing(NO_GRAPHS, limits).check_taken(caller, "main", graph)


def test_who_may_not_see_an_extractor_neither_reads_nor_runs_it() -> None:
    graph = with_secret_extractor(tagged(), "pii")
    with pytest.raises(ForbiddenError, match=r"extractor State\.advise"):
        limited(graph, NO_PII).plan(["Tap.pot"], ["State.advice"])
    limited(graph, NO_PII).plan(["Tap.pot"], ["State.species"])
    caller = owner(replace(EVERY, without=frozenset({"pii"}))).caller
    shown = readable(graph, Tags.of(graph), caller, "main")
    names = {extractor.name for spec in shown.featuresets for extractor in spec.extractors}
    assert ("advise" in names, "give_number" in names) == (False, True)


def test_an_extractor_has_the_tags_of_its_features_too() -> None:
    """A grant by a tag that the features of an extractor have covers the extractor, in queries and in copies."""
    tags = Tags.of(with_secret_extractor(tagged(Pots=("a",)), "b"))
    assert tags.extractors["extractor State.advise"] == {"a", "b"}
