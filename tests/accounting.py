"""Processor time of each test file, with everything that it starts: `pytest --processor-times` (docs/ci.md).

Wall time on a busy machine says little, and most of the work of these tests is done by JVMs. So each test is charged
with the processor time that the process tree below its pytest process used while it ran. An idle service is charged
to whichever test runs at that moment. A daemon that leaves the tree isn't counted.
"""

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field

import psutil
import pytest

_PROPERTY = "processor_seconds"


@dataclass(eq=False)
class ProcessorTimes:
    """Measures tests in the processes that run them, and prints the sums where the results come together."""

    files: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tests: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    used: float = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Charge the time used since the last phase of a test to this phase."""
        report = yield
        used = seconds_of_tree()
        # The time of a child is lost when its own parent ends first.
        report.user_properties.append((f"{_PROPERTY}_{report.when}", max(0.0, used - self.used)))
        self.used = used
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what the phases of a test took."""
        seconds = dict(report.user_properties).get(f"{_PROPERTY}_{report.when}")
        if isinstance(seconds, float):
            self.files[report.nodeid.partition("::")[0]] += seconds
            self.tests[f"{report.when:8} {report.nodeid}"] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print files, and the dearest phases of tests."""
        terminalreporter.section("processor seconds")
        total = sum(self.files.values())
        terminalreporter.write_line(f"{total:9.1f}  all")
        for name, seconds in sorted(self.files.items(), key=lambda file: -file[1]):
            if seconds >= 1:
                terminalreporter.write_line(f"{seconds:9.1f}  {name}")
        terminalreporter.section("processor seconds of the dearest phases")
        for name, seconds in sorted(self.tests.items(), key=lambda test: -test[1])[:80]:
            terminalreporter.write_line(f"{seconds:9.1f}  {name}")


def seconds_of_tree() -> float:
    """Return the processor seconds of this process and its descendants, also of those that have ended."""
    this = psutil.Process()
    seconds = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            seconds += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return seconds
