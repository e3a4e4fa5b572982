import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.jars import JarSet
from caraway.apps.stack.record import StackRecord, write_record
from caraway.dataplane.streams.java.errors import JarsError
from caraway.process.children.part import PartState, PartStatus
from caraway.process.children.process_table import created_at

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Return a data folder with the record of a stack that this process runs."""
    folder = DataFolder(tmp_path)
    folder.run.mkdir()
    created = created_at(os.getpid())
    parts = (
        PartStatus(
            name="engine",
            state=PartState.RUNNING,
            pid=os.getpid(),
            process_created_at=created,
            ready_at=1.0,
            restarts=2,
        ),
        PartStatus(name="kafka", state=PartState.UNRESPONSIVE, message="refused", port=99, external=True),
    )
    urls = {"server": "http://127.0.0.1:8123"}
    record = StackRecord(state="running", pid=os.getpid(), process_created_at=created, urls=urls, parts=parts)
    write_record(folder.record, record)
    folder.heartbeat.write_text(
        json.dumps({"jobs": {"job-1": {"state": "failed", "mode": "real_time", "error": "no such topic"}}})
    )
    return folder


def test_status_of_nothing(tmp_path: Path) -> None:
    result = runner.invoke(app, ["status", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "stopped" in result.output


def test_logs_are_the_last_lines_of_each_part(folder: DataFolder) -> None:
    folder.logs.mkdir()
    folder.log("engine").write_text("".join(f"line {number} [of] engine\n" for number in range(50)))
    folder.log("kafka").write_text("a line of kafka\n")
    where = ["--data", str(folder.path)]
    both = runner.invoke(app, ["logs", *where]).output
    assert [line in both for line in ("line 29 [of] engine", "line 30 [of] engine", "a line of kafka")] == [0, 1, 1]
    one = runner.invoke(app, ["logs", "engine", "-n", "1", *where]).output.splitlines()
    assert one == [f"{folder.log('engine')}:", "  line 49 [of] engine"]
    wrong = runner.invoke(app, ["logs", "enigne", *where])
    assert (wrong.exit_code, "there are those of engine, kafka" in wrong.output) == (1, True)


def test_status_shows_parts_and_jobs(folder: DataFolder) -> None:
    result = runner.invoke(app, ["status", "--data", str(folder.path)])
    assert result.exit_code == 1, "a part is out of order"
    for expected in ("http://127.0.0.1:8123", "engine", str(os.getpid()), "unresponsive (external)", "refused"):
        assert expected in result.output
    for expected in ("job-1", "real_time", "no such topic"):
        assert expected in result.output


def test_status_for_programs(folder: DataFolder) -> None:
    result = runner.invoke(app, ["status", "--json", "--data", str(folder.path)])
    report = json.loads(result.output)
    assert report["state"] == "running"
    assert report["parts"][0]["memory_bytes"] > 1_000_000
    assert report["parts"][0]["restarts"] == 2
    (job,) = report["jobs"]
    shown = {name: job[name] for name in ("id", "state", "mode", "error")}
    assert shown == {"id": "job-1", "state": "failed", "mode": "real_time", "error": "no such topic"}


def test_an_unreadable_heartbeat_is_no_job(folder: DataFolder) -> None:
    folder.heartbeat.write_text("{")
    result = runner.invoke(app, ["status", "--json", "--data", str(folder.path)])
    assert json.loads(result.output)["jobs"] == []


def test_down_where_nothing_runs(tmp_path: Path) -> None:
    result = runner.invoke(app, ["down", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert f"Nothing runs in {tmp_path}" in result.stderr


def test_bad_settings_are_reported_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAWAY_KAFKA__PARTITIONS", "none")
    result = runner.invoke(app, ["up", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "CARAWAY_KAFKA__PARTITIONS" in result.stderr
    assert "Traceback" not in result.output


def test_up_in_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for extra in ([], ["--detach"]):
        result = runner.invoke(app, ["up", "--data", str(file), *extra])
        assert result.exit_code == 1
        assert "a file is in the way" in result.stderr


def test_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = JarSet(broker=(tmp_path / "b.jar",), connector=(tmp_path / "c.jar",))
    monkeypatch.setattr("caraway.apps.cli.jars.ensure_jars", lambda settings, on_progress: found)
    assert "2 Java libraries" in runner.invoke(app, ["jars"]).output
    assert runner.invoke(app, ["jars", "--paths"]).output == f"{tmp_path / 'c.jar'}\n"


def test_jars_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(settings: object, on_progress: object) -> JarSet:
        raise JarsError(f"kafka-clients is missing ({settings is on_progress})")

    monkeypatch.setattr("caraway.apps.cli.jars.ensure_jars", refuse)
    result = runner.invoke(app, ["jars"])
    assert result.exit_code == 1
    assert "kafka-clients is missing" in result.stderr


def test_jobs_shows_their_figures(folder: DataFolder) -> None:
    progress = {"phase": "live", "lag_records": 1234, "lag_seconds": 7.0, "state_bytes": 2_000_000, "batch": 3}
    running = {"state": "running", "mode": "real-time", "error": "", "attempts": 2, "progress": progress}
    folder.heartbeat.write_text(json.dumps({"jobs": {"job-2": running}}))
    result = runner.invoke(app, ["jobs", "--data", str(folder.path)])
    assert result.exit_code == 0, result.output
    for expected in ("job-2", "live", "1,234", "7 s", "2.0 MB"):
        assert expected in result.output
    (told,) = json.loads(runner.invoke(app, ["jobs", "--json", "--data", str(folder.path)]).output)
    assert told["progress"]["lag_records"] == 1234
    assert told["attempts"] == 2


def test_jobs_says_why_one_fails(folder: DataFolder) -> None:
    result = runner.invoke(app, ["jobs", "--data", str(folder.path)])
    assert result.exit_code == 1
    assert "no such topic" in result.output


DEFINITIONS = """
from datetime import datetime
from caraway.connectors import Webhook, source
from caraway.datasets import dataset

__owner__ = "me@example.com"

@source(Webhook(name="hook").endpoint("clicks"), disorder="1d", cdc="append")
@dataset
class Clicks:
    user: str
    at: datetime
"""


def test_explain_shows_the_plan_of_definitions(tmp_path: Path) -> None:
    file = tmp_path / "explained_clicks.py"
    file.write_text(DEFINITIONS)
    result = runner.invoke(app, ["explain", str(file), "--data", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "caraway.Clicks." in result.output
    assert "written by webhook hook/clicks" in result.output
    told = json.loads(runner.invoke(app, ["explain", str(file), "--json", "--data", str(tmp_path)]).output)
    assert [topic["dataset"] for topic in told["topics"]] == ["Clicks"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('groupby("user").aggregate(rows=Count(window=Continuous("1h")))', "late records correct all results"),
        (
            'dedup("user").groupby("user").aggregate(rows=Count(window=Continuous("1h")))',
            "late records correct what lies back up to 1d",
        ),
    ],
)
def test_explain_bounds_corrections_only_of_jobs_that_keep_rows(tmp_path: Path, step: str, expected: str) -> None:
    file = tmp_path / f"late_{'dedup' in step}.py"
    file.write_text(
        "from caraway.datasets import Count, field, pipeline\nfrom caraway.dtypes import Continuous\n"
        f"from caraway.lib import inputs\n{DEFINITIONS}\n\n@dataset(index=True)\nclass Users:\n"
        "    user: str = field(key=True)\n    rows: int\n    at: datetime\n\n    @pipeline\n    @inputs(Clicks)\n"
        f"    def count(cls, clicks):\n        return clicks.{step}\n"
    )
    result = runner.invoke(app, ["explain", str(file), "--data", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert expected in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["nowhere.py"], "can't be imported"), (["json"], "no datasets"), ([], "no stack runs")],
)
def test_explain_says_what_is_missing(tmp_path: Path, arguments: list[str], expected: str) -> None:
    result = runner.invoke(app, ["explain", *arguments, "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert expected in result.output
