"""`caraway status` shows which sources the server reads, which stand still, and how far indexes are behind."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from caraway.apps.cli import status as command
from caraway.apps.cli.application import app
from caraway.apps.stack.report import PartReport, StackReport
from caraway.errors import UnavailableError

RUNNING = StackReport(
    state="running", message="", data_dir="/data", url="http://127.0.0.1:1", memory_bytes=0, parts=(), jobs=()
)


def starting(*, server: str) -> StackReport:
    """Return the report on a stack whose engine starts again, and whose server is in this state."""
    parts = tuple(
        PartReport(
            name=name, state=state, message="", pid=None, port=None, uptime_seconds=None, memory_bytes=None, restarts=1,
            external=False, log=None,
        )
        for name, state in [("engine", "starting"), ("server", server)]
    )  # fmt: skip
    return msgspec.structs.replace(RUNNING, state="starting", parts=parts)


SOURCES = [
    {
        "source": "[Kafka: k](topic=t)", "dataset": "Clicks", "state": "reading", "owned": True, "lag": 7,
        "offsets": {"0": 3}, "read_at": None, "dead_letters": 2, "error": "",
    },
    {
        "source": "[Kafka: k](topic=u)", "dataset": "Users", "state": "failing", "owned": True, "lag": None,
        "offsets": {}, "read_at": None, "dead_letters": 0, "error": "Kafka k at h:1: no broker answers",
    },
]  # fmt: skip


INDEXES = [
    {"dataset": "Counts", "asset": "aa", "lag": 1_200_000, "lag_seconds": 75.25},
    {"dataset": "Totals", "asset": "bb", "lag": 0, "lag_seconds": 0.0},
    {"dataset": "New", "asset": "cc", "lag": None, "lag_seconds": None},
]


def answer(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"sources": sources, "index": {"alive": True, "indexes": INDEXES}}


def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *options: str) -> str:
    monkeypatch.setattr(command, "report_stack", lambda _: RUNNING)
    return CliRunner().invoke(app, ["status", "--data", str(tmp_path), *options], env={"COLUMNS": "200"}).output


def test_each_source_is_shown_with_its_lag_and_its_last_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        command, "ask", lambda *_, **__: answer({**SOURCES[0], "read_at": time.time() - 630}, SOURCES[1])
    )
    lines = shown(monkeypatch, tmp_path).splitlines()
    row = next(line for line in lines if "Clicks" in line)
    assert all(part in row for part in ("[Kafka: k](topic=t)", " reading ", " 7 ", " 10 min ", " 2"))
    assert next(line.split() for line in lines if "Users" in line)[-2:] == ["failing", "0"]
    assert "[Kafka: k](topic=u): Kafka k at h:1: no broker answers" in lines
    assert '"dead_letters": 2' in shown(monkeypatch, tmp_path, "--json")


SINKS = [
    {
        "sink": "[S3: lake](bucket=b,prefix=p)", "target": "s3://b/p_main_v1", "dataset": "Totals", "state": "writing",
        "owned": True, "guarantee": "exactly once", "backlog": 12, "offsets": {"0": 3}, "written_at": None,
        "dead_letters": 0, "error": "",
    },
    {
        "sink": "[HTTP: hooks](endpoint=/e)", "target": "[HTTP: hooks](endpoint=/e)", "dataset": "Totals",
        "state": "refused", "owned": True, "guarantee": "at least once", "backlog": 0, "offsets": {},
        "written_at": None, "dead_letters": 4, "error": "the server answers 422",
    },
]  # fmt: skip


def test_each_sink_is_shown_with_the_name_of_its_table_and_its_last_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        command,
        "ask",
        lambda *_, **__: {**answer(), "sinks": [{**SINKS[0], "written_at": time.time() - 630}, SINKS[1]]},
    )
    lines = shown(monkeypatch, tmp_path).splitlines()
    row = next(line for line in lines if "s3://b/p_main_v1" in line)
    assert all(part in row for part in (" writing ", " exactly once ", " 12 ", " 10 min "))
    assert "[HTTP: hooks](endpoint=/e): the server answers 422" in lines
    assert '"target": "s3://b/p_main_v1"' in shown(monkeypatch, tmp_path, "--json")


def test_each_index_is_shown_with_its_lag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "ask", lambda *_, **__: answer())
    rows = {line.split()[0]: line.split()[1:] for line in shown(monkeypatch, tmp_path).splitlines() if line.split()}
    assert rows["Counts"] == ["1,200,000", "75.2"]
    assert rows["Totals"] == ["0", "0.0"]
    assert rows["New"] == []
    assert '"lag_seconds": 75.25' in shown(monkeypatch, tmp_path, "--json")


def test_a_server_that_runs_is_asked_while_another_part_starts_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "ask", lambda *_, **__: answer(*SOURCES))
    for state, asked in [("running", True), ("starting", False)]:
        monkeypatch.setattr(f"{__name__}.RUNNING", starting(server=state))
        result = shown(monkeypatch, tmp_path)
        assert "/data: starting" in result
        assert ("Clicks" in result) is asked
        assert ("Server: http://127.0.0.1:1" in result) is asked


def test_a_server_that_does_not_answer_leaves_the_sources_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def silent(*_: object, **__: object) -> Any:
        raise UnavailableError("no answer")

    monkeypatch.setattr(command, "ask", silent)
    output = shown(monkeypatch, tmp_path)
    assert "running" in output
    assert "dead letters" not in output


def test_what_is_wrong_with_rows_and_features_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    problem = {
        "what": "Clicks: 306 waiting dead letters.",
        "remedy": "Send them again.",
        "since": "2026-01-01T00:00:00Z",
    }
    part = {"what": "The source [Kafka: k] can't be read.", "remedy": "", "since": None, "link": ""}
    problems = {"problems": [{**problem, "link": "/console/dead-letters?dataset=Clicks"}, part]}

    def ask(_: str, path: str, **__: object) -> dict[str, Any]:
        return problems if path == "/problems" else answer(*SOURCES)

    monkeypatch.setattr(command, "ask", ask)
    text = shown(monkeypatch, tmp_path)
    assert "Clicks: 306 waiting dead letters. Since 2026-01-01 00:00:00 UTC. Send them again." in text
    # The table of sources shows it already.
    assert "The source [Kafka: k] can't be read" not in text
    assert msgspec.json.decode(shown(monkeypatch, tmp_path, "--json"))["problems"] == problems["problems"]
