"""The time of a run: `pytest --times` prints what tests, fixtures and started processes took (docs/inside/ci.md).

Wall time on a busy machine says little, and most of the work of these tests is done by JVMs. So each phase of a test is
charged with its wall time, and with the processor time that the process tree below its pytest process used meanwhile.
An idle service is charged to whichever test runs at that moment. A daemon that leaves the tree isn't counted.
"""

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil
import pytest

_PROPERTY = "times"
_PROCESSES = "processes"
# The names of fixtures, with the seconds that each took, of wall time and of processors.
Fixtures = Sequence[tuple[str, float, float]]
# Each table has the dearest entries, at most so many.
_LINES = 50
# How often a run looks for processes, which takes some 10 ms; one that lives shorter is counted with its parent alone.
_LOOK_SECONDS = 0.5


@dataclass
class Cost:
    """How often something ran, and how many seconds of wall time and of processors it took in all."""

    times: int = 0
    wall: float = 0.0
    processor: float = 0.0

    def add(self, wall: float, processor: float, times: int = 1) -> None:
        """Add a run, or several."""
        self.times += times
        self.wall += wall
        self.processor += processor


@dataclass(eq=False)
class Times:
    """Measures tests in the processes that run them, and prints the sums where the results come together."""

    files: defaultdict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    phases: defaultdict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    fixtures: defaultdict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    processes: defaultdict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    used: float = 0.0

    def __post_init__(self) -> None:
        """Begin to look for processes."""
        self._here: list[tuple[str, float, float]] = []
        # A fixture that is being set up has asked for others, which took so much.
        self._inner: list[Cost] = [Cost()]
        self._seen = SeenProcesses()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Charge a fixture with what it took, less what the fixtures took that it asked for meanwhile."""
        begun, used = time.perf_counter(), self._seen.seconds()
        self._inner.append(Cost())
        try:
            return (yield)
        finally:
            wall, processor = time.perf_counter() - begun, max(0.0, self._seen.seconds() - used)
            inner = self._inner.pop()
            self._inner[-1].add(wall, processor)
            if fixturedef.scope != "function" or wall > 1:
                where = f"{fixturedef.baseid or 'plugin'}::{fixturedef.argname}"
                self._here.append((where, wall - inner.wall, processor - inner.processor))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Charge the time used since the last phase of a test to this phase."""
        report = yield
        used = self._seen.seconds()
        # The time of a child is lost when its own parent ends first.
        report.user_properties.append((_PROPERTY, (report.when, max(0.0, used - self.used), self._here)))
        self.used, self._here = used, []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what the phases of a test took."""
        for name, value in report.user_properties:
            if name != _PROPERTY:
                continue
            phase, processor, fixtures = cast("tuple[str, float, Fixtures]", value)
            if phase == report.when:
                self.files[report.nodeid.partition("::")[0]].add(report.duration, processor, report.when == "call")
                self.phases[f"{report.when} {report.nodeid}"].add(report.duration, processor)
                for where, wall, used in fixtures:
                    self.fixtures[where].add(wall, used)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the processes on to where the results come together."""
        self._seen.stop()
        found = [(name, cost.times, cost.wall, cost.processor) for name, cost in self._seen.costs().items()]
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_PROCESSES] = found
        else:
            self._add_processes(found)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the processes that a process of the run has seen."""
        self._add_processes(getattr(node, "workeroutput", {}).get(_PROCESSES, ()))

    def _add_processes(self, found: Iterable[Sequence[object]]) -> None:
        for name, times, wall, processor in found:
            self.processes[str(name)].add(wall, processor, times)  # type: ignore[arg-type]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the dearest files, phases, fixtures and programs."""
        for title, costs in (
            ("files", self.files),
            ("tests and their set-up", self.phases),
            ("fixtures, less those that they ask for", self.fixtures),
            ("programs that tests start, each with the time for which it ran", self.processes),
        ):
            whole = Cost()
            for cost in costs.values():
                whole.add(cost.wall, cost.processor, cost.times)
            terminalreporter.section(f"the dearest {title}")
            terminalreporter.write_line("| times | wall s | processor s | |\n|---|---|---|---|")
            dearest = sorted(costs.items(), key=lambda cost: -cost[1].processor)[:_LINES]
            for name, cost in [("all", whole), *dearest]:
                terminalreporter.write_line(f"| {cost.times} | {cost.wall:.1f} | {cost.processor:.1f} | {name} |")


class SeenProcesses:
    """Looks again and again at the processes below this one, and remembers what each of them took."""

    def __init__(self) -> None:
        """Start to look."""
        self._seen: dict[tuple[int, float], tuple[str, float, float]] = {}
        self._alive = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def seconds(self) -> float:
        """Return the processor seconds of this process and its descendants, also of those that have ended."""
        times = os.times()
        return sum(times[:4]) + self._alive

    def costs(self) -> dict[str, Cost]:
        """Return what each program took."""
        costs: defaultdict[str, Cost] = defaultdict(Cost)
        for name, wall, processor in self._seen.values():
            costs[name].add(wall, processor)
        return dict(costs)

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            alive = 0.0
            for process in psutil.Process().children(recursive=True):
                try:
                    begun, line = process.create_time(), process.cmdline()
                    times = process.cpu_times()
                except psutil.Error:
                    continue
                used = times.user + times.system
                alive += sum(times[:4])
                # A child has the command line of its parent until it executes a program of its own.
                self._seen[process.pid, begun] = (program_of(line), time.time() - begun, used)
            self._alive = alive


def program_of(line: Sequence[str]) -> str:
    """Return a name for what a command line runs: the same for all of its runs."""
    if not line:
        return "ended"
    program = Path(line[0]).name
    if program.startswith("python"):
        for place, word in enumerate(line[1:], start=1):
            if word == "-m":
                return " ".join(line[place : place + 2])
            if word == "-c":
                return "python -c"
            if word.endswith(".py"):
                return Path(word).name
        return program
    if program == "java":
        mains = [word for word in line[1:] if re.fullmatch(r"[\w.]+\.[A-Z]\w+", word)]
        return f"java {mains[0] if mains else ''}"
    return program.split()[0].rstrip(":")
