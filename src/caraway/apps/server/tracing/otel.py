"""Traces by OpenTelemetry's SDK, sent over OTLP/HTTP. Only servers with `traces.url` import this module."""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version

from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from caraway.apps.server.tracing.spans import Attribute

NS_PER_SECOND = 1_000_000_000
# The most requests that are traced in a second, even if callers ask for more. A trace of a query, with its way to the
# collector, takes less than a millisecond, so this many take less than one hundredth of a processor.
MOST_PER_SECOND = 10
# The most spans that wait to be sent. Further ones are dropped, as usual with OpenTelemetry.
MOST_WAITING = 4_096
_W3C = TraceContextTextMapPropagator()


class OtelTracer:
    """Samples requests, and sends their traces to a collector."""

    def __init__(
        self,
        url: str,
        share: float,
        service: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Start a thread that sends spans.

        Args:
            url: The address of the collector, with its path, such as http://collector:4318/v1/traces.
            share: The share of the requests that are traced, from 0 to 1; callers may ask for more by `traceparent`.
            service: The name of this deployment in traces.
            clock: Counts seconds.
            draw: Returns a random number from 0 to 1.
        """
        resource = Resource.create({"service.name": service, "service.version": version("caraway")})
        # The SDK also reads the resource and the headers in the variables OTEL_*.
        self._provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url), max_queue_size=MOST_WAITING))
        self._tracer = self._provider.get_tracer("caraway")
        self._share = share
        self._clock = clock
        self._draw = draw
        self._second, self._begun = 0, 0

    def begin(self, traceparent: str | None, tracestate: str | None) -> "OtelTrace | None":
        """Return the trace of a request that begins; None if it isn't traced."""
        context = None
        if traceparent is not None:
            carrier = {"traceparent": traceparent, **({} if tracestate is None else {"tracestate": tracestate})}
            context = _W3C.extract(carrier)
            parent = api.get_current_span(context).get_span_context()
            if parent.is_valid and not parent.trace_flags.sampled:
                return None
            if not parent.is_valid:
                context = None
        if context is None and self._draw() >= self._share:
            return None
        second = int(self._clock())
        if second != self._second:
            self._second, self._begun = second, 0
        if self._begun >= MOST_PER_SECOND:
            return None
        self._begun += 1
        return OtelTrace(self._tracer, self._tracer.start_span("request", context, SpanKind.SERVER))

    def stop(self, timeout_s: float) -> None:
        """Send the spans that wait, for at most `timeout_s`."""
        self._provider.force_flush(round(1000 * timeout_s))
        self._provider.shutdown()


class OtelTrace:
    """The trace of one request."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: api.Tracer, span: Span) -> None:
        """Begin with the span of the request."""
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        """The position in the trace as W3C spells it."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, api.set_span_in_context(self._span))
        return carrier["traceparent"]

    def span(self, name: str, attributes: Mapping[str, Attribute] | None = None) -> AbstractContextManager[object]:
        """Measure what happens in a `with` block as a part of the request."""
        return self._tracer.start_as_current_span(name, api.set_span_in_context(self._span), attributes=attributes)

    def add(self, name: str, begun: float, ended: float, attributes: Mapping[str, Attribute]) -> None:
        """Add a part from one time to another, in seconds since the epoch."""
        part = self._tracer.start_span(
            name, api.set_span_in_context(self._span), attributes=attributes, start_time=round(begun * NS_PER_SECOND)
        )
        part.end(round(ended * NS_PER_SECOND))

    def end(self, status: int, target: str, request_id: str) -> None:
        """Note the answer of the request."""
        self._span.update_name(target)
        self._span.set_attributes({"http.response.status_code": status, "caraway.request_id": request_id})
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
