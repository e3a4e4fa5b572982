# Type checkers see classes where decorators make datasets and featuresets, and the tests pass wrong arguments.
# mypy: disable-error-code="attr-defined, no-untyped-def"
import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from caraway.errors import DefinitionError
from caraway.featuresets import extractor, featureset

USER_MODULE = """
from datetime import datetime
from typing import Optional

import numpy as np
import pandas as pd

from caraway.datasets import dataset, field
from caraway.featuresets import extractor, feature as F, featureset
from caraway.lib import includes, inputs, outputs
from shop_tools import rounded

LIMIT = 2


@dataset(index=True)
class Rules:
    species: str = field(key=True)
    text: str
    at: datetime


@featureset
class Request:
    species: str


def shout(text):
    return text.upper() + "!" * LIMIT


@featureset
class Advice:
    species: str = F(Request.species)
    text: str
    score: float

    @extractor(deps=[Rules])
    @includes(rounded)
    @inputs(Request.species)
    @outputs("text", "score")
    def advise(cls, ts, species):
        rows, found = Rules.lookup(ts, species=species, fields=[Rules.text])
        return pd.DataFrame({
            str(cls.text): [cls.decorate(text) for text in rows["text"]],
            "score": np.array([rounded(len(str(Request.species)) / 3) for _ in species]),
        })

    @classmethod
    def decorate(cls, text):
        return cls.prefix() + shout(text)

    @staticmethod
    def prefix():
        return "> "
"""

TOOLS = """
import math

def half_up(x):
    return math.floor(x + 0.5)

def rounded(x):
    return float(half_up(x))
"""

LOAD = """
import pickle, sys
import pandas as pd
from caraway.graph.runtime import lookup_provider

def answer(dataset, ts, keys, fields):
    assert (dataset, list(keys), fields) == ("Rules", ["species"], ["text"])
    return pd.DataFrame({"text": keys["species"]}), pd.Series([True] * len(ts))

lookup_provider.set(answer)
shipped = pickle.loads(open("extractor.bin", "rb").read())
assert "shop" not in sys.modules and "shop_tools" not in sys.modules
ts = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True))
result = shipped(None, ts, pd.Series(["fern", "moss"], name="Request.species"))
print(result.to_dict("list"))
"""


@pytest.mark.slow
def test_an_extractor_runs_where_the_users_modules_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "shop.py").write_text(USER_MODULE)
    (modules / "shop_tools.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(modules)
    advice = importlib.import_module("shop").Advice
    (tmp_path / "extractor.bin").write_bytes(advice.to_spec().extractors[-1].pickled)
    for name in ("shop", "shop_tools"):
        monkeypatch.delitem(sys.modules, name)
    # The process doesn't find the modules, which aren't on its path.
    done = subprocess.run([sys.executable, "-I", "-c", LOAD], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "{'text': ['> FERN!!', '> MOSS!!'], 'score': [2.0, 2.0]}", done.stderr


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    @featureset
    class Leaky:
        a: int

        @extractor
        def leak(cls, ts):  # noqa: ANN001, ANN202
            with lock:
                return ts

    with pytest.raises(DefinitionError, match=r"extractor Leaky\.leak: the function can't be sent"):
        Leaky.to_spec()
