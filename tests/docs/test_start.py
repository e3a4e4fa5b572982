"""The page for newcomers: its training set is computed for the project that `caraway init` makes."""

import sys
from datetime import UTC, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.testing import MockClient
from tests.markdown import DOCS, run_page

PAGE = DOCS / "README.md"


def test_the_first_training_set_has_the_features_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path / "shop")]).exit_code == 0
    spec = spec_from_file_location("features", tmp_path / "shop" / "features.py")
    assert spec is not None
    assert spec.loader is not None
    features = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "features", features)
    spec.loader.exec_module(features)
    client = MockClient()
    client.commit("project", [features.Orders, features.UserOrders], [features.User])
    order = {"user": [1, 1], "amount": [10.0, 30.0], "at": [datetime.now(UTC)] * 2}
    client.log("shop", "orders", pd.DataFrame(order))
    found = run_page(PAGE, tmp_path, monkeypatch).training(client)
    assert found["User.orders_7d"].tolist() == [2, 0]
    assert found["User.mean_amount_30d"].tolist() == [20.0, 0.0]
    assert found["bought"].tolist() == [True, False]


def test_half_an_hour_leads_from_events_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = run_page(DOCS / "learn" / "half_an_hour.md", tmp_path, monkeypatch)
    # A command of the page logs this file.
    assert len(pd.read_csv("payments.csv")) == len(page.payments)
    # The training set leaves each payment itself out, so a card's first payment has no past.
    first = page.training.iloc[0]
    assert (first["Payment.count_3d"], first["Payment.mean_30d"]) == (0, 0.0)


def test_a_moved_feast_repository_has_the_values_that_its_ttl_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run_page(DOCS / "learn" / "from_feast.md", tmp_path, monkeypatch)
    now = page.client.query(page.given, page.DISPATCH, page.entities[["Courier.courier_id", "Courier.distance_km"]])
    assert now["Courier.trips"].isna().all()


def test_the_page_fits_on_a_screen() -> None:
    assert len(PAGE.read_text().splitlines()) < 70
