"""The remedies of the console name files that there are."""

from datetime import UTC, datetime
from pathlib import Path

from caraway.apps.server.console.problems import FOUND, problems_found, problems_of
from caraway.apps.server.pages.surface import PAGES
from caraway.apps.stack.folder import DataFolder


def test_the_log_of_an_engine_that_ended_is_named(tmp_path: Path) -> None:
    job = {"dataset": "Wetness", "pipeline": "mean", "desired": "running", "state": "running", "id": "Wetness.1"}
    status = {"problems": {}, "engines": [], "jobs": [job], "sources": [], "sinks": [], "index": {}}
    (found,) = problems_of(status, ["Wetness"], datetime.now(UTC))
    assert str(DataFolder(tmp_path).log("engine").relative_to(tmp_path)) in found.remedy


def test_findings_lead_to_a_page_that_shows_them_all() -> None:
    assert {f"/console/{page}" for page, _, _ in FOUND.values()} <= {page.path for page in PAGES}
    skewed = [
        {"feature": f"State.f{n}", "served_now": True, "checked": 10, "mismatched": 3, "reasons": {"unknown": 3}}
        for n in range(7)
    ]
    *_, last = problems_found({"skew": {"features": skewed}})
    assert last.link == "/console/skew?"
