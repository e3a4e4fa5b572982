"""Tests of the page on drift: its code runs and finds what the page says, and its links lead somewhere."""

from pathlib import Path

import pytest

from caraway.compute.profiles.comparing import FALSE_ALARMS
from caraway.graph.drift import Drift
from caraway.process.settings.monitoring import DriftSettings
from tests.markdown import DOCS, dead_links, run_page

PAGE = DOCS / "guides" / "monitoring.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = run_page(PAGE, tmp_path, monkeypatch)
    assert module.report.drifted == ("User.age",)
    assert module.Visitor.to_spec().metadata.drift == Drift(psi=0.3)


def test_the_page_names_every_setting_and_leads_somewhere() -> None:
    text = PAGE.read_text()
    assert [name for name in DriftSettings.model_fields if f"| `drift.{name}` |" not in text] == []
    assert dead_links(PAGE) == []
    assert DriftSettings().false_alarms == FALSE_ALARMS
