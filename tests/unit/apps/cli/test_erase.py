from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from tests.unit.client.stub import running

ANSWERS: dict[str, list[str]] = {"erasures": [], "remaining": []}


@pytest.mark.parametrize("dataset", ["Größen", "Key?x", "Key#x", "Key/x"])
@pytest.mark.parametrize("arguments", [["--with", "user=1"], ["--status"]])
def test_the_dataset_may_have_any_name(dataset: str, arguments: list[str]) -> None:
    with running() as stub:
        stub.will(ANSWERS)
        told = CliRunner().invoke(app, ["erase", dataset, *arguments, "--url", stub.url])
        assert told.exit_code == 0, told.output
        assert [unquote(part) for part in stub.last.path.split("/")][4] == dataset
