"""Errors in definitions begin with the file and the line of the user."""

import linecache
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.apps.cli.definitions import find_definitions
from caraway.apps.cli.places import placed
from caraway.errors import InvalidInputError

runner = CliRunner()

GOOD = """from datetime import datetime
from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field
from caraway.featuresets import extractor, featureset, feature as F
from caraway.expr import col
from caraway.lib import inputs
__owner__ = "me@example.com"

@source(Webhook(name="hook").endpoint("pots"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    moisture: float
    at: datetime

@featureset
class Pot:
    pot: int
    moisture: float = F(Pots.moisture, default=0.0)
"""

MISSPELT = """
    @extractor
    @inputs("mositure")
    def dry(cls, ts, moisture): ...
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder, with Python's path and modules as they were before."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("plants", "inner"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace("Pots.moisture", "Pots.moistre"), "plants.py:19: AttributeError: dataset Pots has no field mois"),
        ("import caraway\n\ndef broken(:\n", "plants.py:3: SyntaxError: invalid syntax"),
        ("\nfrom caraway import nothing_at_all\n", "plants.py:2: ImportError: cannot import name 'nothing_at_all'"),
        ("\n\nimport no_such_library\n", "plants.py:3: ModuleNotFoundError: No module named 'no_such_library'"),
        ("def f():\n    return 1 / 0\n\nf()\n", "plants.py:2: ZeroDivisionError: division by zero"),
        ("import caraway\n\nimport inner\n", "inner.py:1: NameError: name 'undefined' is not defined"),
        # The message of an error of Caraway is a sentence for itself. A source is checked when a featureset reads it.
        (
            GOOD.replace('cdc="upsert"', 'cdc="upset"'),
            "plants.py:16: dataset Pots, source [Webhook: hook](endpoint=pots): cdc is one of",
        ),
        # A decorator of a class refuses a member, and the line is that of the member.
        (
            GOOD.replace("moisture: float\n", "moisture: set\n"),
            "plants.py:13: dataset Pots: field moisture: set",
        ),
        (
            GOOD.replace("pot: int = field", "pot: int | None = field"),
            "plants.py:12: dataset Pots: key pot is Opt",
        ),
        (GOOD.replace("F(Pots.moisture,", "F(Pots.pot,"), "plants.py:19: feature Pot.moisture is float, but"),
        (GOOD + "    dry: set = F()\n", "plants.py:20: featureset Pot: feature dry: set is not a type"),
        (GOOD + "    wet: float = F(col('mositure') + 1)\n", "plants.py:20: feature Pot.wet: "),
        (GOOD + MISSPELT, "plants.py:23: extractor Pot.dry: unknown input mositure; did you mean moisture?"),
    ],
)
def test_whatever_a_module_raises_is_one_line_with_the_place(text: str, told: str) -> None:
    Path("inner.py").write_text("undefined\n")
    Path("plants.py").write_text(text)
    result = runner.invoke(app, ["preview", "plants.py"])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {told}")
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"^nowhere\.py can't be imported: No module named 'nowhere'; give a"):
        find_definitions("nowhere.py")


def test_an_error_of_a_commit_has_the_line_of_the_definition() -> None:
    Path("plants.py").write_text(GOOD.replace("__owner__", "__other__"))
    result = runner.invoke(app, ["preview", "plants.py", "--url", "http://127.0.0.1:1"])
    assert result.stderr.splitlines()[1].startswith("Error: plants.py:11: dataset Pots has no owner; put @meta(")


def test_the_line_is_that_of_the_first_definition_that_a_message_names() -> None:
    Path("plants.py").write_text(GOOD)
    found = find_definitions("plants.py")
    for text, line in (
        ("dataset 'Pots': its definition changed", 11),
        ("extractor 'x' of featureset 'Pot': version 1 is stored", 17),
        ("feature Pot.moisture is float, but Pots.moisture is int", 19),
        ("Pots.moisture: no", 13),
        ("function Pot.moisture can't run on the server: No module named 'x'", 19),
        ("function Pot.<lambda> can't run on the server: No module named 'x'", 17),
    ):
        assert placed(text, found) == f"plants.py:{line}: {text}"
    assert placed("Pot plants and Pots are different", found).startswith("plants.py:17")
    assert placed("featureset 'Gone' is left out", found) == "featureset 'Gone' is left out"


def test_definitions_may_be_in_any_encoding_or_without_their_source(tmp_path: Path) -> None:
    (tmp_path / "plants.py").write_text(f"# coding: latin-1\n# Töpfe\n{GOOD}", encoding="latin-1")
    found = find_definitions("plants.py")
    assert placed("dataset Pots is wrong", found) == "plants.py:13: dataset Pots is wrong"
    (tmp_path / "plants.py").unlink()
    linecache.checkcache()
    assert placed("dataset Pots is wrong", found) == "dataset Pots is wrong"


def test_an_error_in_another_encoding_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "plants.py").write_text(f"# coding: latin-1\n# Töpfe\n{GOOD}{MISSPELT}", encoding="latin-1")
    with pytest.raises(InvalidInputError, match=r"^plants\.py:25: extractor Pot.dry: unknown input mositure"):
        find_definitions("plants.py")
