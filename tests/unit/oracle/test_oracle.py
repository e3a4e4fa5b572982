"""The product's answers are those of the oracle, to the bit."""

import math
import random
import struct
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from caraway.datasets import Count
from caraway.dtypes import Hopping
from caraway.featuresets import Featureset
from tests.effort import examples
from tests.unit.oracle import archived, plain, product, steps
from tests.unit.oracle.cases import BASE, OUT, SHAPES, Case, cases, defined, keys_of, times_of
from tests.unit.oracle.features import CHAIN, Chain, asked_of
from tests.unit.oracle.plain import SECOND, Aggregate, Aggregated, Described, Feature, Logged, Row
from tests.unit.oracle.product import Question
from tests.unit.oracle.semantics import NOTHING, Answer, Oracle
from tests.unit.oracle.sources import DATASETS, KEYS

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

QUESTIONS = 120
TIME = "at"
# Explanations of a failure run the case many times more.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


def thorough(number: int) -> settings:
    return settings(max_examples=examples(number), phases=PHASES, suppress_health_check=list(HealthCheck))


def bits(value: Any) -> Any:
    """Return a value in a form in which equal means equal to the bit."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, list):
        return [bits(item) for item in value]
    # A decimal is a text where it is stored.
    return "str" if isinstance(value, Decimal) else type(value).__name__, str(value)


def questions_of(case: Case) -> list[Question]:
    """Draw questions: keys at times."""
    asked = [(key, at) for key in keys_of(case) for at in times_of(case)]
    return asked if len(asked) <= QUESTIONS else random.Random(case.chosen).sample(asked, QUESTIONS)


def compare(
    case: Case, asked: Sequence[Question], expected: Sequence[Answer], found: Sequence[tuple[bool, dict[str, Any]]]
) -> None:
    """Compare the product's answers with the oracle's, in the columns that the answers have."""
    unseen = dict.fromkeys(case.types) | Oracle(case.described, ()).unseen(case.read)
    decayed = decayed_columns(case)
    for question, answer, (there, row) in zip(asked, expected, found, strict=True):
        assert there == (answer.row is not None), f"{question}: found is {there}, but the oracle has {answer}"
        values = {**(unseen if answer.row is None else answer.row), TIME: answer.time}
        for name in set(row) - set(case.keys):
            same = bits(row[name]) == bits(values[name])
            if not same and name in decayed:
                same = math.isclose(row[name], values[name], rel_tol=1e-12, abs_tol=1e-9)
            assert same, f"{name} of {question}: {row[name]!r}, but the oracle has {values[name]!r} of {answer}"


def decayed_columns(case: Case) -> set[str]:
    """Return the decayed sums, whose powers may be rounded in different ways."""
    step = case.described.derived.get(case.read)
    columns = step.columns if isinstance(step, Aggregate) else ()
    return {column.name for column in columns if column.function == "exp_decay_sum"}


def compare_offline(case: Case, *, known: bool) -> None:
    """Compare offline reads: of all columns together, and of each by itself, since it may have a way of its own."""
    oracle, asked = Oracle(case.described, case.logged), questions_of(case)
    expected = [(oracle.as_known_at(at) if known else oracle).read(case.read, key, at) for key, at in asked]
    values = [name for name in case.types if name not in case.keys]
    with archived.reader_of(case, oracle, known=known) as reader:
        for columns in ([*values, TIME], *([name] for name in values)):
            compare(case, asked, expected, archived.answers(case, reader, asked, columns))


def compare_features(
    asked: Sequence[Question], expected: Sequence[Row], found: Sequence[Row], decayed: Collection[str]
) -> None:
    """Compare features, but for decayed sums and what is computed from them, which `compare` compares."""
    for question, wanted, row in zip(asked, expected, found, strict=True):
        for name in set(wanted) - {f"{kind}_{column}" for kind in "ef" for column in decayed}:
            assert bits(row[name]) == bits(wanted[name]), f"{name} of {question}: {row}, but the oracle has {wanted}"


def compare_mock(case: Case) -> None:
    """Compare lookups of the mock client."""
    oracle, asked = Oracle(case.described, case.logged), questions_of(case)
    expected = [oracle.read(case.read, key, at) for key, at in asked]
    compare(case, asked, expected, product.answers(product.mocked(case), case, asked))


def compare_all_features(case: Case, featureset: Featureset, described: Sequence[Feature]) -> None:
    """Compare the features of the mock client, and those of an offline query."""
    oracle, asked = Oracle(case.described, case.logged), questions_of(case)
    decayed = decayed_columns(case)
    expected = [oracle.features(described, dict(zip(case.keys, key, strict=True)), at) for key, at in asked]
    client = product.mocked(case, [featureset])
    compare_features(asked, expected, product.features(client, case, featureset, asked), decayed)
    with archived.reader_of(case, oracle) as reader:
        compare_features(asked, expected, archived.features(case, reader, featureset, asked), decayed)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@thorough(100)
def test_the_mock_client(data: st.DataObject, shape: str) -> None:
    compare_mock(data.draw(cases(shape)))


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@thorough(100)
def test_offline_reads(data: st.DataObject, shape: str) -> None:
    compare_offline(data.draw(cases(shape)), known=False)


@pytest.mark.parametrize("shape", ["logged", "source"])
@given(data=st.data())
@thorough(100)
def test_offline_reads_of_what_was_known(data: st.DataObject, shape: str) -> None:
    compare_offline(data.draw(cases(shape).filter(archived.is_logged)), known=True)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "source"])
@given(data=st.data())
@thorough(50)
def test_features(data: st.DataObject, shape: str) -> None:
    case = data.draw(cases(shape).filter(lambda case: "window" not in case.keys))
    compare_all_features(case, *asked_of(case))


@given(case=cases("source"))
@thorough(50)
def test_a_chain_of_lookups(case: Case) -> None:
    compare_all_features(case, Chain, CHAIN)


def counted(seconds: int | None, along: str | None, logged: Sequence[Logged]) -> Case:
    """Return a case that counts the rows of a table, by their keys, over a window that ends every second."""
    read = steps.read("Table")
    window = Hopping("forever" if seconds is None else f"{seconds}s", "1s")
    node = read.node.groupby("k").aggregate(number=Count(window=window), along=along)
    column = Aggregated("number", "count", window=plain.Hopping(seconds and seconds * SECOND, SECOND))
    step = Aggregate(read.step, ("k",), (column,), along)
    out = read.becomes(node, step, types={"k": "str", "number": "int"}, keys=("k",), tied=True)
    datasets = (DATASETS["Table"], defined(OUT, out))
    return Case(datasets, OUT, Described(KEYS, {OUT: step}), out.types, out.keys, tuple(logged), batches=1, chosen=0)


def version(key: str, time: int, *, due: int = 0, deleted: bool = False) -> Logged:
    """Return a version of a key, or its deletion, at a second; `due` is a second, too."""
    row = {"k": key, "j": "p", "n": None, "x": 0.1, "s": None, "due": BASE + due * SECOND}
    return Logged("Table", BASE + time * SECOND, row, BASE + time * SECOND, deleted)


A_REPLACED_ROW = [version("a", 0, due=1), version("a", 0, due=0)]
A_DELETED_ROW = [version("a", 0), version("b", 5), version("b", 5, deleted=True)]


@pytest.mark.parametrize(
    ("case", "number"),
    [
        pytest.param(counted(1, "due", A_REPLACED_ROW), None, id="replaced"),
        pytest.param(counted(1, "due", [*A_REPLACED_ROW, version("b", 0, due=1)]), 1, id="replaced, and another one"),
        pytest.param(counted(None, None, A_DELETED_ROW), None, id="deleted"),
        pytest.param(counted(None, None, A_DELETED_ROW[:2]), 1, id="not deleted"),
    ],
)
def test_a_row_that_never_held_closes_no_window(case: Case, number: int | None) -> None:
    """A row of a table that another one, or a deletion, of the same event time replaces is as if it had never come."""
    answer = Oracle(case.described, case.logged).read(OUT, ("a",), BASE + 9 * SECOND)
    assert answer == (NOTHING if number is None else Answer({"k": "a", "number": number}, BASE + SECOND))
    compare_mock(case)
    compare_offline(case, known=False)
    compare_all_features(case, *asked_of(case))


@pytest.mark.full(reason="five times as many cases as the tests above draw, for some minutes")
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
@thorough(500)
def test_many_cases(data: st.DataObject, shape: str) -> None:
    case = data.draw(cases(shape))
    compare_mock(case)
    compare_offline(case, known=False)
    if archived.is_logged(case):
        compare_offline(case, known=True)
    if shape != "source" and "window" not in case.keys:
        compare_all_features(case, *asked_of(case))
