"""Traces: a query and an event, sent to a receiver of OTLP over HTTP that decodes them by the official protobuf."""

import asyncio
import gzip
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from caraway.apps.server.freshness.events import FOLLOWED_S, MOST, Events
from caraway.apps.server.freshness.heartbeats import Heartbeats
from caraway.apps.server.http.endpoints import API
from caraway.apps.server.tracing import tracer as tracers
from caraway.apps.server.tracing.otel import MOST_PER_SECOND, OtelTracer
from caraway.apps.server.tracing.spans import TRACE
from caraway.apps.server.tracing.writing import TracingWriter
from caraway.dataplane.topics.producer import TopicItem
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.monitoring import TracesSettings
from tests.unit.apps.server.asking import Writer, ask
from tests.unit.apps.server.test_answers import LOG, POT, make_app
from tests.unit.apps.server.test_freshness import INTERVAL_S, PLAN, VISITS, World, settle

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-2] + "00"
QUERY = {"inputs": ["Tap.pot"], "outputs": ["State.species", "State.advice"], "data": [{"Tap.pot": 1}]}


class Collector(ThreadingHTTPServer):
    """A collector on a free port, which keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1/traces"

    def named(self) -> dict[str, Any]:
        return {span.name: span for span in self.spans}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        for found in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append({a.key: a.value.string_value for a in found.resource.attributes})
            for scope in found.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_query_is_a_trace_with_its_parts(collector: Collector) -> None:
    tracer = OtelTracer(collector.url, 1.0, "shop")
    answer = ask(make_app(tracer=tracer), "POST", f"{API}/query", QUERY, x_request_id="abc-1")
    assert answer.status == 200
    tracer.stop(10.0)
    spans = collector.named()
    whole = spans.pop("extract_features")
    assert spans.keys() <= {"parse", "plan", "alias", "index read", "expressions", "extractor", "encode"}
    assert {"parse", "plan", "index read", "encode"} <= spans.keys()
    assert {"expressions", "extractor"} & spans.keys()
    for span in collector.spans:
        assert whole.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= whole.end_time_unix_nano
    assert {span.parent_span_id for span in spans.values()} == {whole.span_id}
    assert {span.trace_id for span in spans.values()} == {whole.trace_id}
    assert attributes(whole) == {"http.response.status_code": 200, "caraway.request_id": "abc-1"}
    assert attributes(spans["index read"])["caraway.step"].startswith("Pots by pot")
    assert collector.resources[0]["service.name"] == "shop"


def test_the_trace_of_a_caller_goes_on(collector: Collector) -> None:
    tracer = OtelTracer(collector.url, 0.0, "shop")
    app = make_app(tracer=tracer)
    assert ask(app, "POST", f"{API}/query", QUERY).status == 200
    assert ask(app, "POST", f"{API}/query", QUERY, traceparent=UNSAMPLED).status == 200
    assert ask(app, "POST", f"{API}/query", QUERY, traceparent="00-nonsense").status == 200
    assert ask(app, "POST", f"{API}/query", {**QUERY, "outputs": ["Nope.x"]}, traceparent=PARENT).status == 404
    tracer.stop(10.0)
    whole = collector.named()["extract_features"]
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT[3:35]}
    assert whole.parent_span_id.hex() == PARENT[36:52]
    assert attributes(whole)["http.response.status_code"] == 404


def test_the_share_is_that_of_the_settings_and_bounded() -> None:
    draw = random.Random(5).random
    now = [0.0]
    tracer = OtelTracer("http://127.0.0.1:1/v1/traces", 0.05, "shop", clock=lambda: now[0], draw=draw)
    traced = 0
    for second in range(100):
        now[0] = float(second)
        traced += sum(tracer.begin(None, None) is not None for _ in range(100))
    assert 400 < traced < 600
    now[0] = 1_000.0
    assert sum(tracer.begin(PARENT, None) is not None for _ in range(1_000)) == MOST_PER_SECOND


def test_records_of_a_traced_request_carry_its_position(collector: Collector) -> None:
    written: list[tuple[str, TopicItem]] = []

    class Kept:
        def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
            written.extend((topic, item) for item in items)
            return Writer().write(topic, items)

    followed: list[frozenset[str]] = []
    kept: Any = Kept()
    freshness: Any = SimpleNamespace(follow_event=lambda trace, topics: followed.append(topics))
    tracer = OtelTracer(collector.url, 0.0, "shop")
    app = make_app(tracer=tracer, writer=TracingWriter(kept), freshness=freshness)
    assert ask(app, "POST", f"{API}/log", {**LOG, "data": [POT]}).status == 200
    assert ask(app, "POST", f"{API}/log", {**LOG, "data": [POT]}, traceparent=PARENT).status == 200
    tracer.stop(10.0)
    (_, plain), (topic, carried) = written
    assert plain[2] is None
    assert plain[:2] == (carried[0], plain[1])
    assert carried[2] is not None
    whole = collector.named()["log"]
    assert dict(carried[2])["traceparent"].decode() == f"{PARENT[:35]}-{whole.span_id.hex()}-01"
    assert followed == [frozenset({topic})]
    assert TRACE.get() is None


def test_an_event_is_followed_through_jobs_and_indexes(collector: Collector) -> None:
    world = World()
    events = Events(lambda: world.now, lambda: 1_700_000_000.0 + world.now)
    world.heartbeats = Heartbeats(world, world.arrivals, INTERVAL_S, lambda *_: None, events.note)
    world.heartbeats.follow([PLAN])
    world.begin()
    settle(world)
    world.now = 1.0
    world.accept(VISITS)
    tracer = OtelTracer(collector.url, 1.0, "shop")
    trace = tracer.begin(None, None)
    assert trace is not None
    assert events.add(trace, frozenset({VISITS}))
    trace.end(200, "log", "abc")
    world.now = 1.5
    events.begin(world.heartbeats)
    assert events.wait_for_a_beat
    world.begin()
    for _ in range(4):
        world.now += 0.25
        world.run_all()
        world.advance()
    tracer.stop(10.0)
    spans = collector.named()
    assert spans.keys() == {
        "log",
        "the job of Hourly",
        "the index that sends the rows of Hourly",
        "the job of Busy",
        "the index of Busy",
    }
    assert {span.trace_id for span in spans.values()} == {spans["log"].trace_id}
    ends = [spans[name].end_time_unix_nano for name in list(spans)[1:]]
    assert min(ends) > 1_700_000_001_500_000_000
    assert spans["the job of Hourly"].end_time_unix_nano <= spans["the index of Busy"].end_time_unix_nano
    assert [span.name for span in collector.spans].count("the index of Busy") == 1
    events.begin(world.heartbeats)
    assert events._events == [], "it has passed everything"


def test_events_are_bounded_in_number_and_time() -> None:
    world = World()
    events = Events(lambda: world.now, lambda: world.now)
    trace: Any = SimpleNamespace(add=lambda *_: None)
    assert [events.add(trace, frozenset()) for _ in range(MOST + 1)] == [True] * MOST + [False]
    events.begin(world.heartbeats)
    assert not events.add(trace, frozenset())
    world.now = FOLLOWED_S + 1.0
    events.begin(world.heartbeats)
    assert events.add(trace, frozenset())


def test_without_an_address_nothing_is_traced_and_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tracers.tracer_of(TracesSettings()) is None

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(tracers, "import_module", missing)
    with pytest.raises(ConfigurationError, match=r"traces\.url: .*pip install caraway\[otel\]"):
        tracers.tracer_of(TracesSettings(url="http://127.0.0.1:4318/v1/traces"))


def test_tasks_do_not_share_a_trace() -> None:
    async def run() -> list[bool]:
        seen: list[bool] = []

        async def one(own: Any) -> None:
            TRACE.set(own)
            await asyncio.sleep(0)
            seen.append(TRACE.get() is own)

        await asyncio.gather(*(one(object()) for _ in range(3)))
        return seen

    assert asyncio.run(run()) == [True] * 3
