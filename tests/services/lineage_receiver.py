"""A receiver of OpenLineage's events over HTTP, which checks them by the classes of OpenLineage's own client.

These are generated from OpenLineage's JSON schemas: each class names the schema that it stands for, and has its fields.
"""

import inspect
import threading
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import attr
import orjson
from openlineage.client import event_v2, facet_v2
from openlineage.client.event_v2 import JobEvent, RunEvent
from openlineage.client.generated.base import DatasetFacet, JobFacet, RunFacet

_EVENTS = {cls._get_schema(): cls for cls in (JobEvent, RunEvent)}
_FACETS = {
    member._get_schema(): member
    for module in vars(facet_v2).values()
    if inspect.ismodule(module)
    for member in vars(module).values()
    if inspect.isclass(member) and issubclass(member, DatasetFacet | JobFacet | RunFacet)
}
_SUFFIXES = ("DatasetFacet", "JobFacet", "RunFacet")


class Receiver:
    """Takes events, and answers with given codes first."""

    def __init__(self) -> None:
        """Listen on a free port; `start` begins to answer."""
        self.codes: list[int] = []
        self.location = ""
        self.requests: list[Mapping[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.answering = threading.Event()
        self.answering.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The address of events."""
        return f"http://127.0.0.1:{self._server.server_port}/api/v1/lineage"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append({"path": self.path, **self.headers})
                receiver.answering.wait()
                code = receiver.codes.pop(0) if receiver.codes else 201
                if code == 201:
                    receiver.events.append(orjson.loads(body))
                self.send_response(code)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def check(event: Mapping[str, Any]) -> None:
    """Raise AssertionError if an event isn't what the class of its schema has."""
    _check_class(_EVENTS[event["schemaURL"]], event, "event")
    assert event["producer"].startswith("urn:caraway:")
    if event["schemaURL"] == RunEvent._get_schema():
        assert event["eventType"] in {state.value for state in event_v2.RunState}
    # The classes check formats when they are made: times, ids, and names of producers.
    RunEvent(
        eventTime=event["eventTime"],
        run=event_v2.Run(event.get("run", {}).get("runId", "00000000-0000-0000-0000-000000000000")),
        job=event_v2.Job("", ""),
        producer=event["producer"],
    )


def _check_class(cls: type, value: Mapping[str, Any], where: str) -> None:
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in attr.fields(cls)}
    assert value.keys() <= fields.keys(), f"{where}: {cls.__name__} has no {value.keys() - fields.keys()}"
    needed = {name for name, field in fields.items() if field.default is attr.NOTHING}
    assert needed <= value.keys(), f"{where}: {needed - value.keys()} is missing"
    for name, found in value.items():
        if name.endswith("acets"):
            _check_facets(found, f"{where}.{name}")
        else:
            _check_value(hints[name], found, f"{where}.{name}")


def _check_facets(facets: Mapping[str, Mapping[str, Any]], where: str) -> None:
    for name, facet in facets.items():
        cls = _FACETS[facet["_schemaURL"]]
        stem = next(cls.__name__.removesuffix(suffix) for suffix in _SUFFIXES if cls.__name__.endswith(suffix))
        assert name == stem[:1].lower() + stem[1:], f"{where}: {name} is a {cls.__name__}"
        _check_class(cls, facet, f"{where}.{name}")


def _check_value(hint: Any, value: Any, where: str) -> None:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        chosen = [part for part in parts if part is not type(None)]
        assert len(chosen) == 1, f"{where}: {hint}"
        _check_value(chosen[0], value, where)
    elif origin is list:
        assert isinstance(value, Sequence), f"{where}: {value!r}"
        for item in value:
            _check_value(parts[0], item, where)
    elif origin is dict:
        for name, item in value.items():
            _check_value(parts[1], item, f"{where}.{name}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        assert value in {member.value for member in hint}, f"{where}: {value!r}"
    elif attr.has(hint):
        _check_class(hint, value, where)
    else:
        assert isinstance(value, hint), f"{where}: {value!r} is no {hint}"


def by_job(events: Sequence[Mapping[str, Any]], choose: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """Return the chosen events by the names of their jobs."""
    return {event["job"]["name"]: event for event in events if choose(event)}
