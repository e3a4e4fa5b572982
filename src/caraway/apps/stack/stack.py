"""The whole stack of one machine: its parts, their order, their addresses, its record."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from caraway.apps.stack import ports
from caraway.apps.stack.announcement import announce, withdraw
from caraway.apps.stack.errors import PartFailedError, PortInUseError
from caraway.apps.stack.external import ExternalService
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.jars import ensure_jars
from caraway.apps.stack.kafka import EMBEDDED, EmbeddedKafka, kafka_classes
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.apps.stack.probe import check_postgres
from caraway.apps.stack.programs import ArchiveProgram, EngineProgram, ServerProgram
from caraway.apps.stack.record import StackRecord, read_record, write_record
from caraway.client.discovery import DEFAULT_PORT
from caraway.dataplane.topics.admin import BrokerAdmin, check_access
from caraway.dataplane.topics.credentials import sign_in
from caraway.process.children.logs import begin_anew, quote
from caraway.process.children.part import Part, PartState, PartStatus
from caraway.process.children.process_table import created_at, end_leftovers, is_alive
from caraway.process.children.runner import REPEATED_DEATHS, Runner
from caraway.process.postgres_refusals import remedy_of
from caraway.process.settings.certificates import certificate_of, check_names, client_url
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import Settings

# The seconds for which the start waits for services outside of the stack, and for parts that have become ready and then
# don't answer any more. The other parts have limits of their own (`caraway.process.children.progress`).
START_SECONDS = 240.0

# The states of a part that is still being started.
STARTING = frozenset({PartState.PREPARING, PartState.STARTING, PartState.RESTARTING})

# Seconds between two looks of the start whether all parts are ready.
POLL_SECONDS = 0.1

# A function that shows the progress of a stack. The stack calls it for each event, such as a change of a part's state,
# with a line of text about the event and the status of all parts.
Progress = Callable[[str, Sequence[PartStatus]], None]

# The parts are stopped in this order, one set after the other, so that no part loses another one that it needs.
STOP_ORDER = (frozenset({"server", "engine", "archive"}), frozenset({"kafka", "postgres"}))


class Stack:
    """Postgres, Kafka, engine, server and archive in a data folder, kept alive until they are stopped.

    ```python
    with Stack(load_settings()) as stack:
        client = Client(stack.url)
    ```

    Attributes:
        settings: The settings as the parts get them: with all addresses filled in once the stack has started.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._folder = DataFolder(settings.data_dir)
        self._runners: dict[str, Runner | ExternalService] = {}
        self._record = StackRecord(state="stopped")
        self._on_progress: Progress = _silent
        self._reserved: socket.socket | None = None
        # Parts report from their own threads; the lock lets one of them at a time write the record.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the HTTP server. Raises `PartFailedError` if the stack has not been started."""
        url = client_url(self.settings.server)
        if url is None:
            raise PartFailedError("The stack has no address before it is started: call start() first.")
        return url

    def start(self, on_progress: Progress | None = None) -> None:
        """Start all parts, and return once all of them are ready.

        Args:
            on_progress: Called with each event and each change; from several threads, one at a time.

        Raises:
            AlreadyRunningError: Another stack runs in the data folder.
            ConfigurationError: A Kafka or Postgres of the user's own refuses the settings, or the server can't listen
                at its address.
            DataFolderError: The data folder can't be used.
            PortInUseError: The port that the settings name for the server is taken.
            JarsError: A Java library can't be fetched.
            JavaMissingError: There is no Java.
            PartFailedError: A part didn't become ready; all are stopped again.
        """
        self.report_to(on_progress)
        self._folder.claim()
        try:
            self._clear_leftovers()
            parts = self._assemble()
            self._start(parts)
            self._wait_until_ready()
        except Exception as error:
            self._end("failed", str(error))
            raise
        except BaseException:
            # Ctrl-C was pressed, which isn't a failure.
            self._end("stopped", "")
            raise

    def stop(self) -> None:
        """Stop all parts in good order; those that don't follow in time are killed."""
        if self._runners:
            self._end("stopped", "")

    def kill(self) -> None:
        """Kill all parts at once, for a user who won't wait for `stop`; acknowledged data is safe all the same."""
        for part in self.status():
            if part.pid and is_alive(part.pid, part.process_created_at):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(part.pid, signal.SIGKILL)

    def report_to(self, on_progress: Progress | None) -> None:
        """Report progress to another function from now on, or to none."""
        with self._lock:
            self._on_progress = on_progress or _silent

    def status(self) -> tuple[PartStatus, ...]:
        """Return the status of all parts."""
        with self._lock:
            return tuple(runner.status for runner in self._runners.values())

    def _clear_leftovers(self) -> None:
        """End the processes that a killed supervisor left, and begin a record with the ports of the last stack."""
        former = read_record(self._folder.record) or StackRecord(state="stopped")
        living = [(part.pid, part.process_created_at) for part in former.parts if part.pid and part.process_created_at]
        ended = end_leftovers(living)
        self._record = StackRecord(
            state="starting",
            pid=os.getpid(),
            process_created_at=created_at(os.getpid()),
            started_at=time.time(),
            ports=former.ports,
        )
        # `caraway status` shows from now on that the stack starts, also while Java libraries are fetched.
        self._write_record()
        if ended:
            self._report(f"Ended {len(ended)} processes that an earlier stack had left behind")

    def _assemble(self) -> list[Part | ExternalService]:
        """Choose addresses, fill them into the settings, and create the parts."""
        settings, path = self.settings, self._folder.path
        parts: list[Part | ExternalService] = []
        kafka, postgres = settings.kafka, settings.postgres
        if postgres.url is None:
            embedded_postgres = EmbeddedPostgres(path / "postgres", self._port("postgres"))
            postgres = postgres.model_copy(update={"url": embedded_postgres.url})
            parts.append(embedded_postgres)
        else:
            url = postgres.url
            if (reason := check_postgres(url)) is not None and remedy_of(reason):
                raise ConfigurationError(f"postgres.url: {reason}")
            parts.append(ExternalService("postgres", lambda: check_postgres(url), on_change=self._changed_part))
        self._report("Looking for the Java libraries")
        jars = ensure_jars(
            settings, lambda done, wanted, what: self._report(f"Java libraries: {what} ({done}/{wanted})")
        )
        if kafka.bootstrap_servers is None:
            embedded_kafka = EmbeddedKafka(
                path / "kafka",
                port=self._port("kafka"),
                controller_port=self._port("kafka_controller"),
                jars=jars.broker,
                heap_mb=kafka.heap_mb,
                java_options=kafka_classes(settings.cache_dir, jars.broker).options(),
            )
            kafka = kafka.model_copy(
                update={
                    "bootstrap_servers": embedded_kafka.bootstrap_servers,
                    **EMBEDDED,
                    "password": embedded_kafka.password,
                }
            )
            parts.append(embedded_kafka)
        else:
            check_access(sign_in(kafka))
            admin = BrokerAdmin(kafka.bootstrap_servers)
            parts.append(
                ExternalService("kafka", admin.problem, on_change=self._changed_part, warning=lambda: admin.warning)
            )
        certificate_of(settings.server)
        check_names(settings.server)
        server = settings.server.model_copy(update={"port": self._server_port(), **self._token_setting()})
        spark = settings.spark.model_copy(update={"jars": settings.spark.jars or jars.connector})
        self.settings = settings.model_copy(
            update={"kafka": kafka, "postgres": postgres, "server": server, "spark": spark}
        )
        parts += self._programs(path)
        urls = {"server": self.url, "kafka": kafka.bootstrap_servers, "postgres": postgres.url}
        self._record = replace(self._record, urls={name: url for name, url in urls.items() if url})
        return parts

    def _token_setting(self) -> dict[str, Path]:
        """Create the stack's token if the server requires tokens and the settings name no file with one."""
        if not self.settings.server.tokens or self.settings.server.admin_token_file is not None:
            return {}
        self._folder.ensure_token()
        return {"admin_token_file": self._folder.token}

    def _programs(self, path: Path) -> list[Part]:
        programs: list[Part] = [
            EngineProgram(path / "engine", self.settings, self._folder.heartbeat),
            ServerProgram(path / "server", self.settings, self._record.ports["server"]),
        ]
        if self.settings.archive.enabled:
            programs.append(ArchiveProgram(path / "archive", self.settings))
        return programs

    def _port(self, use: str, host: str = "127.0.0.1") -> int:
        """Return the port that the last stack in this folder had for a use, or another one if that port is taken."""
        former = self._record.ports.get(use)
        others = {port for name, port in self._record.ports.items() if name != use}
        if former is not None and former not in others and ports.is_free(former, host):
            return former
        port = ports.choose(host, avoid=others)
        if former is not None:
            self._report(f"Port {former} of {use} is taken by another program; from now on it is {port}")
        self._remember(use, port)
        return port

    def _server_port(self) -> int:
        """Reserve the server's port: that of the settings, or that of the last stack, or a free one from 8100 on."""
        host, named = self.settings.server.host, self.settings.server.port
        others = {port for name, port in self._record.ports.items() if name != "server"}
        former = self._record.ports.get("server")
        port = named or former or DEFAULT_PORT
        try:
            self._reserved = ports.reserve(port, host)
        except PortInUseError as error:
            if named:
                raise PortInUseError(
                    f"{error} End that one, or choose another port with\n"
                    "CARAWAY_SERVER__PORT; without it Caraway chooses a free one."
                ) from None
            taken = port
            port, self._reserved = ports.reserve_from(DEFAULT_PORT, host, avoid=others)
            self._report(f"Port {taken} of server is taken by another program; from now on it is {port}")
        self._remember("server", port)
        return port

    def _remember(self, use: str, port: int) -> None:
        self._record = replace(self._record, ports={**self._record.ports, use: port})

    def _start(self, parts: Sequence[Part | ExternalService]) -> None:
        for part in parts:
            if isinstance(part, ExternalService):
                self._runners[part.status.name] = part
                continue
            # No process writes to the part's log now. So the last log is moved away, and this start begins a new file.
            begin_anew(self._folder.log(part.name))
            self._runners[part.name] = Runner(
                part,
                self._folder.log(part.name),
                may_start=partial(self._are_ready, part.after),
                is_held_up=partial(self._is_missing_one, part.needs),
                on_change=self._changed_part,
            )
        self._publish("Starting")
        for runner in self._runners.values():
            runner.start()

    def _are_ready(self, names: frozenset[str]) -> bool:
        return all(self._runners[name].has_been_ready for name in names)

    def _is_missing_one(self, names: frozenset[str]) -> bool:
        """Return whether one of these parts of the stack isn't ready; services outside of it have their own limit."""
        needed = [status for status in self.status() if status.name in names and not status.external]
        return any(status.state is not PartState.RUNNING for status in needed)

    def _wait_until_ready(self) -> None:
        # The last time at which no external service was away, and the last time at which the start of a part was under
        # way.
        services_at = under_way_at = time.monotonic()
        with self._changed:
            # A part reports its state before it sets `has_been_ready`. Waiting for both makes "Ready" the last report.
            while not all(it.has_been_ready and it.status.state is PartState.RUNNING for it in self._runners.values()):
                for status in self.status():
                    if status.state is not PartState.RUNNING and status.restarts >= REPEATED_DEATHS:
                        raise PartFailedError(f"{status.name} doesn't start: {status.message}")
                now = time.monotonic()
                if all(status.state is PartState.RUNNING for status in self.status() if status.external):
                    services_at = now
                if any(status.state in STARTING for status in self.status() if not status.external):
                    under_way_at = now
                if now > min(services_at, under_way_at) + START_SECONDS:
                    raise PartFailedError(self._unready())
                self._changed.wait(POLL_SECONDS)
            self._record = replace(self._record, state="running", message="")
            self._publish("Ready")
        self._announce()

    def _announce(self) -> None:
        """Write the stack into this user's list of running stacks, by which clients in any folder find it."""
        try:
            announce(self._folder.path, self.url)
        except OSError as error:
            self._report(
                f"Clients in other folders must be given the URL: the list of stacks can't be written: {error}"
            )

    def _unready(self) -> str:
        late = [status for status in self.status() if status.state is not PartState.RUNNING]
        lines = [f"Not ready after {START_SECONDS:.0f} s: {', '.join(status.name for status in late)}."]
        lines += [f"{status.name}: {status.message}\n{quote(self._folder.log(status.name))}" for status in late]
        return "\n".join(lines)

    def _end(self, state: str, message: str) -> None:
        withdraw(self._folder.path)
        with self._lock:
            self._record = replace(self._record, state="stopping", message=message)
            self._publish("Stopping")
        for names in STOP_ORDER:
            ending = [runner for name, runner in self._runners.items() if name in names]
            for runner in ending:
                runner.stop(0)
            for runner in ending:
                runner.stop(None)
        with self._lock:
            self._record = replace(self._record, state=state, message=message, pid=None, process_created_at=None)
            self._publish("Stopped")
            self._runners = {}
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        self._folder.release()

    def _changed_part(self, status: PartStatus) -> None:
        with self._changed:
            text = f"{status.name}: {status.state}"
            self._publish(f"{text} ({status.message})" if status.message else text)
            self._changed.notify_all()

    def _report(self, text: str) -> None:
        # A terminal may be closed, a pipe broken (then rich raises `SystemExit`), or the disk of a log full. The parts
        # continue all the same, and so must their supervision, whose threads report from here.
        with self._lock, contextlib.suppress(OSError, SystemExit):
            self._on_progress(text, self.status())

    def _publish(self, text: str) -> None:
        with self._lock:
            self._record = replace(self._record, parts=self.status())
            self._report(text + self._write_record())

    def _write_record(self) -> str:
        """Write the record; return what to add to a report about it, "" if it was written."""
        try:
            write_record(self._folder.record, self._record)
        except OSError as error:
            # If the disk is full, the parts continue as long as they can, so their supervision must continue, too.
            return f" (and {self._folder.record} can't be written: {error})"
        return ""


def _silent(text: str, parts: Sequence[PartStatus]) -> None:
    """Show nothing."""
