"""Explanations of the oracle's random cases: the listed parts give the value, to the bit.

Cases have late rows, ties, corrections, deletes, all kinds of windows, joins with `within`, and chains of lookups.
"""

import random
from collections.abc import Sequence

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.why.explaining import bits
from caraway.compute.why.model import MAX_LISTED, Lookup, Why, time_of
from caraway.featuresets import Featureset
from caraway.testing import MockClient
from tests.unit.compute.why.recomputing import recompute
from tests.unit.oracle import product
from tests.unit.oracle.cases import SHAPES, Case, cases
from tests.unit.oracle.features import Chain, asked_of
from tests.unit.oracle.plain import Aggregate
from tests.unit.oracle.product import Question, instant
from tests.unit.oracle.semantics import Oracle
from tests.unit.oracle.test_oracle import questions_of, thorough

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

# Each explanation computes the whole pipeline once more, so a case has few questions.
QUESTIONS = 4


def explained(client: MockClient, case: Case, asked: Featureset, feature: str, question: Question) -> Why:
    key, at = question
    given_ = {f"{asked._name}.{name}": part for name, part in zip(case.keys, key, strict=True)}
    why = client.why(f"{asked._name}.{feature}", given_, instant(at), limit=MAX_LISTED)
    # An explanation that is sent and read again has the same bits.
    assert msgspec.json.decode(msgspec.json.encode(why), type=Why) == why
    return why


def check(client: MockClient, case: Case, asked: Featureset, features: Sequence[str]) -> None:
    """Compare some explained features with the oracle's parts, and with the answers of a query."""
    rng = random.Random(case.chosen)
    questions = rng.sample(questions_of(case), min(QUESTIONS, len(questions_of(case))))
    rows = product.features(client, case, asked, questions)
    catalog = client._current().catalog
    for question, row in zip(questions, rows, strict=True):
        name = rng.choice(list(features))
        why = explained(client, case, asked, name, question)
        assert why.check.same is True, str(why)
        assert bits(recompute(why, catalog)) == bits(why.value), str(why)
        again = client.query_offline(list(why.inputs), [why.feature], "t", _frame(why.inputs, question[1]))[
            why.feature
        ].astype(object)
        assert repr(product.stored(again[0])) == repr(row[name])
        for step in why.steps:
            for lookup in step.lookups:
                check_parts(case, lookup)


def _frame(inputs: dict[str, object], at: int) -> pd.DataFrame:
    return pd.DataFrame({**{name: [value] for name, value in inputs.items()}, "t": [instant(at)]})


def check_parts(case: Case, lookup: Lookup) -> None:
    """Compare the rows in each window, by their event times, with those that the oracle counts."""
    step = case.described.derived.get(lookup.dataset)
    if not isinstance(step, Aggregate) or lookup.parts is None:
        return
    assert len(lookup.parts.items) == lookup.parts.total
    oracle = Oracle(case.described, case.logged)
    for window in lookup.windows:
        listed = [item for item in lookup.parts.items if window.aggregate in item.within]
        assert window.count == len(listed)
        for item in listed:
            assert window.end is not None
            assert time_of(item.event_time) < time_of(window.end)
            assert window.begin is None or time_of(item.event_time) >= time_of(window.begin)
        times = [time_of(item.event_time) for item in listed]
        assert times == sorted(times)
        everything = sorted(entry.time for entry in oracle.placed(step))
        for time in times:
            assert time in everything


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "source"])
@given(data=st.data())
@thorough(20)
def test_the_parts_give_the_value(data: st.DataObject, shape: str) -> None:
    case = data.draw(cases(shape).filter(lambda case: "window" not in case.keys))
    asked, described = asked_of(case)
    check(product.mocked(case, [asked]), case, asked, [feature.name for feature in described])


@given(case=cases("source"))
@thorough(20)
def test_a_chain_of_lookups(case: Case) -> None:
    check(product.mocked(case, [Chain]), case, Chain, ["j", "n", "v", "w", "sum"])
