"""The remedies of the console name files that there are."""

from datetime import UTC, datetime
from pathlib import Path

from caraway.apps.server.console.problems import problems_of
from caraway.apps.stack.folder import DataFolder


def test_the_log_of_an_engine_that_ended_is_named(tmp_path: Path) -> None:
    job = {"dataset": "Wetness", "pipeline": "mean", "desired": "running", "state": "running", "id": "Wetness.1"}
    status = {"problems": {}, "engines": [], "jobs": [job], "sources": [], "sinks": [], "index": {}}
    (found,) = problems_of(status, ["Wetness"], datetime.now(UTC))
    assert str(DataFolder(tmp_path).log("engine").relative_to(tmp_path)) in found.remedy
