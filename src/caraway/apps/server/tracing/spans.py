"""Traces as handlers see them, without any library: nothing is measured unless the request was sampled."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol

Attribute = str | int | float | bool


class Trace(Protocol):
    """The trace of a request."""

    @property
    def traceparent(self) -> str:
        """The position in the trace as W3C spells it, for others who continue it."""
        ...

    def span(self, name: str, attributes: Mapping[str, Attribute] | None = None) -> AbstractContextManager[object]:
        """Measure what happens in a `with` block as a part of the request."""
        ...

    def add(self, name: str, begun: float, ended: float, attributes: Mapping[str, Attribute]) -> None:
        """Add a part that was measured by other means, from one time to another, in seconds since the epoch.

        It may come after the request was answered.
        """
        ...

    def end(self, status: int, target: str, request_id: str) -> None:
        """Note the answer of the request."""
        ...


class Tracer(Protocol):
    """Decides which requests are traced."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> Trace | None:
        """Return the trace of a request that begins; None if it isn't traced.

        Args:
            traceparent: The trace of the caller, to be continued, as W3C spells it.
            tracestate: The data that the caller's tracing systems keep with it.
        """
        ...

    def stop(self, timeout_s: float) -> None:
        """Send the traces that wait, for at most `timeout_s`."""
        ...


TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the request under way in this task; None if it isn't traced."""

_NOTHING = nullcontext()


def span(name: str) -> AbstractContextManager[object]:
    """Measure what happens in a `with` block, if the request is traced."""
    trace = TRACE.get()
    return _NOTHING if trace is None else trace.span(name)
