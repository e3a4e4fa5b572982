"""Explanations from records on topics: the oracle's random cases, as a server's process computes them."""

import random
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.client import arguments
from caraway.compute.query.catalog import Catalog
from caraway.compute.why.explaining import Question, bits, explain
from caraway.compute.why.lookups import Listing
from caraway.compute.why.model import MAX_LISTED, Why
from caraway.compute.why.parts import all_shown
from caraway.dataplane.topics.blocks import is_block, split
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.reader import Message
from caraway.graph.plan.model import IndexPlan, RecordSchema
from caraway.graph.plan.planner import plan_graph
from caraway.offline.history.records import TopicRecords
from caraway.offline.narrowing import KeyRecords, NarrowReader
from caraway.offline.reader import OfflineReader
from caraway.offline.why.histories import TopicHistories
from caraway.offline.why.known import KnownRecords
from caraway.offline.why.sources import Found, Messages, Place, SourceRecords
from tests.unit.compute.why.recomputing import recompute
from tests.unit.offline.topics import GivenTopics, topic_of
from tests.unit.oracle import archived
from tests.unit.oracle.cases import SHAPES, Case, cases
from tests.unit.oracle.features import Chain, asked_of
from tests.unit.oracle.semantics import Oracle
from tests.unit.oracle.test_oracle import decayed_columns, questions_of, thorough

pytestmark = pytest.mark.filterwarnings("ignore:aggregate", "ignore:select")

QUESTIONS = 4


class GivenMessages(Messages):
    """The records of topics whose messages are given."""

    def __init__(self, messages: Mapping[str, list[Message]]) -> None:
        self._messages = messages

    def at(self, topic: str, schema: RecordSchema, places: Iterable[Place]) -> Mapping[Place, Found]:
        codec, found = RecordCodec(schema), {}
        for _, value, partition, offset in self._messages.get(topic, ()):
            for number, part in enumerate(split(value or b"") if is_block(value) else [value or b""]):
                record = codec.decode_value(part)
                row = dict(zip((column.name for column in schema.columns), record.row or (), strict=True))
                found[partition, offset, number] = Found(
                    time_us=record.time, ingested_us=record.ingested, row={schema.timestamp: record.time, **row}
                )
        return {place: found[place] for place in places if place in found}


class Explainer:
    """Explains the features of a case from the messages that a server would have."""

    def __init__(self, case: Case, oracle: Oracle, featuresets: list[object]) -> None:
        graph = arguments.gather(list(case.datasets), featuresets)
        self.catalog = Catalog("a commit", graph)
        self.plan = plan_graph(graph)
        wanted = [p for p in self.plan.indexes if p.dataset == case.read or p.dataset in case.described.sources]
        self.messages = {plan.topic: archived.messages_of(case, plan, oracle) for plan in wanted}
        self.indexes: list[IndexPlan] = wanted
        self.source: TopicRecords = GivenTopics(self.messages)

    def __call__(self, feature: str, inputs: Mapping[str, object], at: int, *, known: bool = False) -> Why:
        source = KnownRecords(self.source, at) if known else self.source
        records = KeyRecords(source, self.indexes, whole=True)
        erased = ErasedKeys(dict)
        topics = [topic_of(plan) for plan in self.indexes]

        def reader(found: TopicRecords) -> OfflineReader:
            return OfflineReader(found, self.indexes, topics)

        sources = SourceRecords(self.plan, self.catalog.datasets, GivenMessages(self.messages), erased, all_shown)
        histories = TopicHistories(records, self.plan, self.catalog.datasets, sources, erased)
        question = Question(feature=feature, inputs=inputs, at_us=at, listing=Listing(0, MAX_LISTED), as_known=known)
        return explain(self.catalog, NarrowReader(records, reader), histories, question)


def check(case: Case, featureset: object, described: list[str], *, known: bool) -> None:
    """Explain some features of some keys; the parts give the value, which is the oracle's."""
    oracle, rng = Oracle(case.described, case.logged), random.Random(case.chosen)
    explainer = Explainer(case, oracle, [featureset])
    left_out = {f"{kind}_{column}" for kind in "ef" for column in decayed_columns(case)}
    names = [name for name in described if name not in left_out]
    questions = questions_of(case)
    for key, at in rng.sample(questions, min(QUESTIONS, len(questions))):
        given_ = {f"{featureset._name}.{name}": value for name, value in zip(case.keys, key, strict=True)}  # type: ignore[attr-defined]
        why = explainer(f"{featureset._name}.{rng.choice(names)}", given_, at, known=known)  # type: ignore[attr-defined]
        assert why.check.same is True, str(why)
        assert bits(recompute(why, explainer.catalog)) == bits(why.value), str(why)
        for step in why.steps:
            for lookup in step.lookups:
                for item in lookup.parts.items if lookup.parts is not None else ():
                    assert item.position is not None
                    assert item.ingested is not None


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "source"])
@given(data=st.data())
@thorough(20)
def test_the_parts_give_the_value(data: st.DataObject, shape: str) -> None:
    case = data.draw(cases(shape).filter(lambda case: "window" not in case.keys))
    asked, described = asked_of(case)
    check(case, asked, [feature.name for feature in described], known=False)


@given(case=cases("logged").filter(archived.is_logged))
@thorough(20)
def test_what_was_known(case: Case) -> None:
    asked, described = asked_of(case)
    check(case, asked, [feature.name for feature in described], known=True)


@given(case=cases("source"))
@thorough(20)
def test_a_chain_of_lookups(case: Case) -> None:
    check(case, Chain, ["j", "n", "v", "w", "sum"], known=False)
