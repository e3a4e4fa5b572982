"""Nothing is lost, doubled or goes back when a process of the pipeline is killed."""

from pathlib import Path

import pytest

from tests.parity.crash_run import crash_run
from tests.parity.crashes import Victim


@pytest.mark.full(reason="fourteen jobs over five kills")
@pytest.mark.timeout(900)
def test_kills_lose_double_and_regress_nothing(tmp_path: Path) -> None:
    victims = [Victim.JVM, Victim.COUNTING, Victim.INDEX, Victim.BROKER, Victim.ENGINE]
    report = crash_run(tmp_path, victims, rows=400, tell=print)
    assert not report.regressed, report.regressed[:10]
    assert not report.differences, "\n\n".join(report.differences)
    assert report.reads > 100
