"""A console in process: the whole application over definitions, with accounts, dead letters and a status."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from prometheus_client import generate_latest
from typing_extensions import override

from caraway.apps.server.access.gate import Gate
from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.access.sites import Sites
from caraway.apps.server.app import App
from caraway.apps.server.freshness.freshness import Freshness
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.health import KnownLosses
from caraway.apps.server.history import History
from caraway.apps.server.http.endpoints import Router, bound
from caraway.apps.server.lags import WORST, pace_of
from caraway.apps.server.pages.surface import pages
from caraway.apps.server.rates import ERRORS, MEAN, QUERIES, ROWS, SLOWEST, extractions_of, rows_of
from caraway.apps.server.served_graph import ServedGraph
from caraway.apps.server.surface import DOCUMENT, ENDPOINTS
from caraway.apps.server.tracing.spans import Tracer
from caraway.compute.query.catalog import Catalog
from caraway.compute.query.executor import QueryEngine
from caraway.dataplane.index.feeding.lag import IndexLag
from caraway.dataplane.ingest.endpoints import Endpoints
from caraway.dataplane.ingest.service import IngestService
from caraway.dataplane.sinks.sinks import SinkStatus
from caraway.dataplane.sources.sources import SourceStatus
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.letter_reader import Letter
from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import GraphPlan
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import encode_graph
from caraway.process.settings.server import ServerSettings
from caraway.state.access import AccessList, Session, TokenOwner, digest_of
from caraway.state.blueprints import blueprints
from caraway.state.erasures import ErasureRecord
from caraway.state.losses import Loss
from caraway.state.model import BranchHeads, BranchRecord, CommitRecord, JobRecord, LeaseRecord
from caraway.state.permissions import Caller, Grant, Mode
from caraway.state.plans import Needed, Planned
from tests.unit.apps.server.asking import HOST, Exchange, Writer, send
from tests.unit.apps.server.console.findings import Accounts, Audit, Drift, Explanations, Profiles, Quality, Skew
from tests.unit.apps.server.reports import job_record
from tests.unit.apps.server.test_access import Nothing

MADE: Any = SimpleNamespace
NOW = datetime.now(UTC)
# The ages of a day: a minute and a half once, and little at all other times.
PAST = [(1_790_000_040 + 60 * minute, 90.0 if minute == 70 else 0.03) for minute in range(1_440)]
ORIGIN = f"http://{HOST}"
FORM = "application/x-www-form-urlencoded"
ROLES: Mapping[str, tuple[Grant, ...]] = {
    "admin": (Grant(modes=frozenset(Mode)),),
    "nothing": (),
    "reader": (Grant(modes=frozenset({Mode.READ_DEFINITION, Mode.READ_DATA})),),
    "definitions": (Grant(modes=frozenset({Mode.READ_DEFINITION})),),
    "data": (Grant(modes=frozenset({Mode.READ_DATA})),),
    "writer": (Grant(modes=frozenset({Mode.WRITE_DATA, Mode.WRITE_DEFINITION})),),
    "limited": (Grant(modes=frozenset(Mode), without=frozenset({"pii"})),),
    "here": (Grant(modes=frozenset(Mode), branches=frozenset({"main"})),),
    "elsewhere": (Grant(modes=frozenset(Mode), branches=frozenset({"dev"})),),
}


class Letters:
    """The dead letters of a test."""

    def __init__(self, letters: Iterable[Letter]) -> None:
        self.letters = list(letters)

    def newest(self, before: Mapping[int, int], count: int) -> list[Letter]:
        return [one for one in reversed(self.letters) if one.offset < before.get(one.partition, 1 << 62)][:count]

    def at(self, partition: int, offset: int) -> Letter | None:
        return next((one for one in self.letters if (one.partition, one.offset) == (partition, offset)), None)


class Replayed:
    """The replays of a test."""

    def __init__(self) -> None:
        self.claimed: list[str] = []
        self.finished: list[str] = []

    def of(self, ids: Iterable[str]) -> dict[str, str]:
        return {name: NOW.isoformat() for name in ids if name in self.finished}

    def claim(self, name: str, account: str) -> Any:
        self.claimed.append(f"{account} {name}")
        return MADE(done_at=NOW if name in self.finished else None, elapsed=None)

    def done(self, name: str) -> None:
        self.finished.append(name)


@dataclass(slots=True)
class Site:
    """A console, and what it shows."""

    graph: Graph
    plan: GraphPlan
    app: App
    jobs: list[JobRecord]
    engines: list[LeaseRecord]
    lags: list[IndexLag]
    replays: Replayed
    audit: Audit
    accounts: Accounts
    explanations: Explanations
    drift: Drift
    rolled_back: list[str]
    quality: Quality
    profiles: Profiles
    skew: Skew
    letters: Letters
    problems: dict[str, str]
    shared: dict[str, frozenset[str]]
    sources: list[SourceStatus]
    sinks: list[SinkStatus]
    erasures: list[ErasureRecord]

    @property
    def recorded(self) -> list[str]:
        """The actions that were written to the audit log before they began."""
        return self.audit.recorded

    def get(self, path: str, role: str | None = "admin", **given: str) -> Exchange:
        headers = {} if role is None else {"cookie": f"other=1; caraway_session={role}"}
        return self.send("GET", path, b"", **{**headers, **given})

    def page(self, path: str, role: str | None = "admin") -> "Structure":
        """Return a page that is shown, and whole."""
        return whole(self.get(path, role))

    def words(self, path: str, role: str | None = "admin") -> str:
        return self.page(path, role).text

    def post(self, path: str, fields: Mapping[str, str], role: str | None = "admin", **given: str) -> Exchange:
        headers = {} if role is None else {"cookie": f"caraway_session={role}"}
        headers |= {"origin": ORIGIN, "content-type": FORM}
        return self.send("POST", path, urlencode(fields).encode(), **{**headers, **given})

    def send(self, method: str, path: str, body: bytes, **given: str) -> Exchange:
        named = {name.replace("_", "-"): value for name, value in given.items()}
        return send(self.app, method, path, body, {"host": HOST, **named})


def job_of(plan: GraphPlan, dataset: str = "Wetness", **more: Any) -> JobRecord:
    """Return the job of a dataset as it runs."""
    figures = {"lag_records": 0, "lag_seconds": 0.0, "rows_per_second": 12.5}
    (job,) = (job for job in plan.jobs if job.dataset == dataset)
    return job_record(job, **{"progress": figures, **more})


def engine(*, alive: bool, ago: timedelta = timedelta()) -> LeaseRecord:
    """Return the lease of an engine."""
    return LeaseRecord(name="engine/here", owner="here", alive=alive, expires_at=datetime.now(UTC) - ago)


def site(
    graph: Graph,
    letters: Iterable[Letter] = (),
    *,
    plan: GraphPlan | None = None,
    tokens: bool = True,
    tracer: Tracer | None = None,
    writer: Any = None,
    freshness: Any = None,
    losses: Sequence[Loss] = (),
    namesakes: bool = False,
) -> Site:
    """Return a console and an API over definitions; each role has a token of its own name.

    With `namesakes`, branch dev serves datasets of the same names, too.
    """
    plan = plan_graph(graph) if plan is None else plan
    queries = QueryEngine(Catalog("v", graph), Nothing())
    served = ServedGraph("a" * 32, graph, plan, Endpoints(plan), queries)
    branch = BranchRecord(name="main", head="a" * 32, serving="a" * 32, created_at=NOW)
    other = BranchRecord(name="dev", head="b" * 32, serving=None, created_at=NOW)
    empty = BranchRecord(name="empty", head=None, serving=None, created_at=NOW)

    def commit_named(text: str) -> str:
        """Return a commit by its id or its branch, as `StateReader.commit_id` does."""
        found = {one.name: one.head for one in (branch, other)}.get(text, text)
        if found not in graphs:
            raise UnknownEntityError(f"there is no commit {text!r}")
        return str(found)

    commit = CommitRecord(
        id="a" * 32,
        branch="main",
        parent=None,
        message="The <first> commit",
        author="ada",
        created_at=NOW,
        fingerprint="f",
        summary=("Created all.",),
    )
    jobs: list[JobRecord] = []
    engines: list[LeaseRecord] = []
    lags: list[IndexLag] = []
    audit, accounts, explanations, drift = Audit(), Accounts(ROLES), Explanations(), Drift()
    quality, profiles, skew, dead_letters = Quality(plan), Profiles(), Skew(), Letters(letters)
    rolled_back: list[str] = []
    sources: list[SourceStatus] = []
    sinks: list[SinkStatus] = []
    erasures: list[ErasureRecord] = []
    problems: dict[str, str] = {}
    shared = {blueprint.content: frozenset({"main"}) for blueprint in blueprints(plan)}
    known = KnownLosses(lambda: losses)
    indexes = [
        {"dataset": index.dataset, "asset": index.asset.hex(), "lag": 0, "newest_ingested_us": 1_700_000_000_000_000}
        for index in plan.indexes
    ]
    # Three hours in which an index and a job fell behind for some minutes.
    past, traffic = History(), History()
    behind = [index.asset.hex() for index in plan.indexes if index.dataset == "Wetness"]
    for minute in range(180):
        late = 40.0 if 70 <= minute < 80 else 0.02
        paces = {pace_of(job.job_id): 12.5 + minute % 7 for job in plan.jobs}
        past.note(
            60 * minute, {WORST: late, **dict.fromkeys([*behind, *(job.job_id for job in plan.jobs)], late), **paces}
        )
        rates = {ROWS: 120.0 + minute % 11, QUERIES: 30.0 + minute % 5, ERRORS: float(minute == 75)}
        parts = {rows_of("Pots"): 20.0, extractions_of("Species.mean"): 15.0}
        traffic.note(60 * minute, {**rates, **parts, MEAN: 0.0021, SLOWEST: 0.05 if late > 1 else 0.01})
    replays = Replayed()
    owners = {
        digest_of(role): TokenOwner(Caller(account=role, token_id=role, grants=grants), None)
        for role, grants in ROLES.items()
    }

    def roll_back(commit_id: str, *, preview: bool, approve: Any, **_: Any) -> Any:
        approve([(spec.name, spec.metadata.tags) for spec in graph.datasets])
        rolled_back.append(f"{commit_id} {preview}")
        return MADE(summary=["Pots: <changed>"], commit_id=None if preview else "c" * 32)

    def promoted(asked: Any, *, branch: str, approve: Any, **_: Any) -> Any:
        assert (asked.message, branch, asked.graph) == ("promote dev", "main", graphs["b" * 32])
        return roll_back("dev", preview=asked.preview, approve=approve)

    def pause(job_id: str, *, paused: bool) -> None:
        jobs[:] = [replace(job, paused=paused) if job.job_id == job_id else job for job in jobs]

    # The other branch lacks the last dataset.
    graphs = {"a" * 32: graph, "b" * 32: replace(graph, datasets=graph.datasets[:-1])}
    # Each role has a session of its own name, too, which the cookie of its browser has.
    until = NOW + timedelta(days=1)
    begun = {
        digest: Session(account=owner.caller.account, token_digest=digest, groups=(), expires_at=until)
        for digest, owner in owners.items()
    }
    access = MADE(list_now=lambda _known: AccessList(1, owners, begun)) if tokens else None
    log: Any = audit
    gate = Gate(log, access)
    gate.refresh()
    deployment = MADE(
        accounts=MADE(gate=gate, access=accounts if tokens else None, audit=audit),
        control=MADE(commits=MADE(roll_back=roll_back, commit=promoted), pauses=MADE(set=pause)),
        monitoring=MADE(drift=drift, false_alarms=0.001, quality=quality, profiles=profiles, skew=skew),
        offline=MADE(queries=explanations, runner=explanations, objects=explanations, reports=MADE(all=dict)),
        status=MADE(
            freshness=freshness
            or MADE(
                ages=dict,
                of=lambda plan: [_age(index.dataset) for index in plan.indexes],
                history=lambda plan, name: {index.dataset: PAST for index in plan.indexes if index.dataset == name},
            ),
            figures=generate_latest,
            health=MADE(problems=lambda: problems, warning=known.warning),
            lags=MADE(look=lambda: tuple(lags), past=past, traffic=traffic),
            losses=known,
        ),
        graphs=MADE(
            require_served_graph=lambda _branch="main": served,
            main=lambda: served,
            reload=lambda: None,
            all=lambda: {"main": served, "dev": served} if namesakes else {"main": served},
            require_needed=lambda: Needed(
                heads=BranchHeads(branches=(branch, other, empty)),
                commits={commit: Planned(graph=found, plan=plan) for commit, found in graphs.items()},
            ),
        ),
        state=MADE(
            branch_heads=lambda: MADE(branches=(branch, other, empty)),
            history=lambda branch, limit: () if branch == "empty" else (commit,)[:limit],
            jobs=lambda: tuple(jobs),
            leases=lambda _prefix: tuple(engines),
            past_topics=lambda _branch: frozenset(topic.name for topic in plan.topics),
            commit=lambda _id: commit,
            commit_id=commit_named,
            graph=lambda commit_id: encode_graph(graphs[commit_id]),
            ledger=lambda closed: ()[:closed],
            assets=tuple,
            references=lambda _ids=None: dict(shared),
        ),
        index=MADE(positions=list, status=lambda: {"indexes": [dict(index) for index in indexes]}),
        connectors=MADE(sinks=MADE(statuses=lambda: list(sinks)), sources=MADE(statuses=lambda: list(sources))),
        topics=MADE(newest=MADE(newest=lambda *_, **__: []), letters=dead_letters, replays=replays),
        erasure=MADE(
            erased=ErasedKeys(dict),
            erasures=MADE(of=lambda dataset, _branch, limit: [e for e in erasures if e.key.dataset == dataset][:limit]),
            eraser=MADE(member="here"),
        ),
        secrets=MADE(refresh=lambda: None, get=str, names=dict),
    )
    context = ServerContext(
        limits=AccessLimits(deployment.graphs),
        keep=lambda *_, **__: None,
        deployment=deployment,
        ingest=IngestService(writer or Writer(), "nowhere:1"),
        document=DOCUMENT,
    )
    answered = bound(ENDPOINTS, context)
    router = Router((*answered, *pages(context, answered)))
    app = App(router, gate, sites=Sites(ServerSettings()), tracer=tracer)
    return Site(
        graph,
        plan,
        app,
        jobs,
        engines,
        lags,
        replays,
        audit,
        accounts,
        explanations,
        drift,
        rolled_back,
        quality,
        profiles,
        skew,
        dead_letters,
        problems,
        shared,
        sources,
        sinks,
        erasures,
    )


def _age(dataset: str) -> Freshness:
    return Freshness(dataset=dataset, seconds=0.034, delay_seconds=0.034, served_until=1_790_000_000.0, waits_for="")


class Structure(HTMLParser):
    """The structure of a page, and what is wrong with it for people who don't see it."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.headings: list[int] = []
        self.links: list[str] = []
        self.forms: list[str] = []
        self.ids: list[str] = []
        self.tables = self.captions = 0
        self.described: list[str] = []
        self.controls: dict[str, bool] = {}
        self.labelled: set[str] = set()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            self.faults.append(f"not closed: {self._open}")
        self.faults += [f"no label for {name}" for name in self.controls if name not in self.labelled]
        self.faults += [f"nothing has the id {name}" for name in self.described if name not in self.ids]
        self.faults += [f"two have the id {name}" for name in self.ids if self.ids.count(name) > 1]
        if self.tables != self.captions:
            self.faults.append("a table without a caption")
        if self.headings.count(1) != 1 or self.headings[0] != 1:
            self.faults.append(f"headings {self.headings}")
        for before, after in zip(self.headings, self.headings[1:], strict=False):
            if after > before + 1:
                self.faults.append(f"a heading of level {after} after one of {before}")

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID and tag not in {"path", "rect"}:
            self._open.append(tag)
        if tag in {"script", "style", "iframe", "object"} or "style" in given or any(n.startswith("on") for n in given):
            self.faults.append(f"{tag} with style or script: {given}")
        if tag in {"h1", "h2", "h3", "h4"}:
            self.headings.append(int(tag[1]))
        if tag == "a" and given.get("href") is not None:
            self.links.append(str(given["href"]))
        if tag == "form":
            self.forms.append(str(given.get("action")))
        if tag in {"input", "textarea", "select"} and given.get("type") != "hidden":
            self.controls[str(given.get("id"))] = True
        if tag == "label":
            self.labelled.add(str(given.get("for")))
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if "id" in given:
            self.ids.append(str(given["id"]))
        self.described += [
            name for key in ("aria-labelledby", "aria-describedby") for name in (given.get(key) or "").split()
        ]
        if tag == "th" and given.get("scope") not in {"col", "row"}:
            self.faults.append("a heading of a table without scope")

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag in {"path", "rect"}:
            return
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> doesn't fit")

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID and tag not in {"path", "rect"}:
            self.handle_endtag(tag)

    @override
    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def whole(answer: Exchange, status: int = 200) -> Structure:
    """Return the page of an answer, which has this status, and in whose structure nothing is wrong."""
    page = Structure(answer.text)
    assert (answer.status, page.faults) == (status, []), answer.text
    return page
