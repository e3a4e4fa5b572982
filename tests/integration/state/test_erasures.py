"""Erased keys and the commits that compute their dataset again, on a real Postgres."""

import sqlalchemy as sa

from caraway.apps.server.erasure.recomputing import Recomputing
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.dataplane.topics.erasure_places import DERIVED, TOPIC
from caraway.dtypes.types import STRING
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import Column, TopicPlan
from caraway.graph.specs import Graph
from caraway.state.erasures import ErasedKey, ErasureLog, erasure_by
from caraway.state.model import NewCommit
from caraway.state.plans import Needed, Plans
from caraway.state.reader import StateReader
from caraway.state.writer import StateWriter
from tests.integration.state.deployment import new_commit
from tests.unit.apps.server.control.graphs import clicks, spend

USER = Column(name="user", dtype=STRING)
MAC_KEYS = {"k": b"k" * 32}


def commit(name: str, parent: str | None, *, version: int = 1) -> NewCommit:
    return new_commit(name, parent, Graph(datasets=(clicks(), spend(version=version))))


class Deployment:
    """The state of a deployment, whose head has a dataset `Spend` that a job computes from `Clicks`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.writer, self.log = StateWriter(engine), ErasureLog(engine)
        self.plans = Plans(StateReader(engine))
        self.writer.publish(commit("a", None))

    def head(self) -> Needed:
        return self.plans.refresh()

    def topic(self, dataset: str) -> TopicPlan:
        (name,) = (branch.head for branch in self.head().heads.branches)
        assert name is not None
        return next(t for t in self.head().commits[name].plan.topics if t.dataset == dataset)

    def erase(self, dataset: str, user: str, *, downstream: bool = False) -> int:
        scope = self.topic(dataset).name
        erasure: Erasure = erasure_of(scope, (USER,), [user], "k", MAC_KEYS["k"])
        key = ErasedKey(
            request="r",
            branch="main",
            dataset=dataset,
            topic=scope,
            columns=erasure.columns,
            key_id=erasure.key_id,
            digest=erasure.digest,
            account="me",
            token_id="",
            by_key=not downstream,
            downstream=downstream,
        )
        assert self.log.add([key]) == 1
        return self.log.since(0)[-1].id

    def erase_downstream(self, user: str) -> None:
        """Erase a user in `Clicks`, and commit again what depends on it."""
        number = self.erase("Clicks", user, downstream=True)
        self.log.done([number], TOPIC)
        assert Recomputing(self.engine).begin() == ("main",)
        # The next such erasure needn't wait.
        self.log.done([number], DERIVED)

    def hidden(self, *users: str) -> list[str]:
        """Return which users are erased on the topic of `Spend` that the head has, for a process that begins now."""
        erased, topic = ErasedKeys(lambda: MAC_KEYS), self.topic("Spend")
        for record in self.log.since(0):
            erased.add(record.key.topic, [erasure_by(record.key)])
        hides, codec = erased.hides(topic.name, topic.schema.keys), RecordCodec.of_keys(topic.schema.keys)
        return [user for user in users if hides is not None and hides(codec.encode_key([user]) or b"")]


def test_keys_stay_erased_in_what_is_computed_again_and_are_announced_there(engine: sa.Engine) -> None:
    own = Deployment(engine)
    before, old = own.topic("Spend").name, own.head()
    number = own.erase("Spend", "ann")
    own.log.recorded([number], old.commits)
    assert own.log.unrecorded() == []
    own.erase_downstream("bob")
    assert own.topic("Spend").name != before
    assert own.hidden("ann", "bob", "eve") == ["ann"]
    # A server that doesn't know the new commit yet has written the records to the old topics only.
    assert number in [record.id for record in own.log.unrecorded()]
    own.log.recorded([number], old.commits)
    assert number in [record.id for record in own.log.unrecorded()]
    own.log.recorded([number], own.head().commits)
    assert number not in [record.id for record in own.log.unrecorded()]
    # So it is each time, until a version is raised.
    own.erase_downstream("eve")
    assert own.hidden("ann", "bob", "eve") == ["ann"]
    assert number in [record.id for record in own.log.unrecorded()]
    own.log.recorded([number], own.head().commits)
    own.writer.publish(commit("raised", own.head().heads.branches[0].head, version=2))
    assert own.hidden("ann", "bob", "eve") == []
    assert number not in [record.id for record in own.log.unrecorded()]
