"""Profiles and drift at the desk, of everything that holds a table."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import caraway
from caraway.client.training import complete
from caraway.errors import InvalidInputError
from caraway.lib import Drift

FRAME = pd.DataFrame({"user": [1, 1, 2], "n": [1.0, None, 3.0], "city": ["a", "b", "a"]})


@pytest.mark.parametrize("rows", [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME), complete(FRAME)])
def test_everything_that_holds_a_table_has_a_profile(rows: object) -> None:
    profile = caraway.profile(rows, keys=["user"])
    assert list(profile.columns) == ["n", "city"]
    assert (profile.rows, profile.columns["n"].missing, profile.columns["n"].mean) == (3, 1, 2.0)
    assert profile.columns["city"].top() == [("a", 2), ("b", 1)]


def test_drift_takes_tables_and_profiles() -> None:
    chance = np.random.default_rng(1)
    before, after = (pd.DataFrame({"n": chance.normal(mean, 1, 3_000)}) for mean in (0, 1))
    assert caraway.drift(before, caraway.profile(after)).drifted == ("n",)
    assert not caraway.drift(caraway.profile(before), before)
    inf = float("inf")
    assert not caraway.drift(before, after, thresholds={"n": Drift(psi=inf, ks=inf, mean=inf)})


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not list"):
        caraway.profile([1, 2])
    with pytest.raises(InvalidInputError, match="no times of ingestion"):
        caraway.profile(complete(FRAME), delay=("a", "b"))
