"""Tests of several servers of which one writes the rows of aggregates, through changes of that one."""

import secrets
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from caraway.apps.server.emitting import LEASE, TOKEN_KEY, EmissionRight
from caraway.dataplane.index.feeding.worker import IndexWorker
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.producer import TopicWriter
from caraway.state.database import connect
from caraway.state.ownership.leases import Lease
from tests.integration.index.flow import TIMEOUT_S, wait_for
from tests.integration.index.rows import CASES, Events

# Duration of the lease, long beside the time between two lines of a test on a busy machine.
LASTING = timedelta(seconds=600)
ARRIVING = timedelta(seconds=40)


class Server:
    """The parts of a server that write rows."""

    def __init__(self, stack: ExitStack, name: str, folder: Path, kafka: str, postgres: str) -> None:
        self.store = stack.enter_context(IndexStore(folder / name, cache_bytes=1 << 20))
        self.now = 0.0
        engine = connect(postgres)
        stack.callback(engine.dispose)
        lease = Lease(engine=engine, name=LEASE, owner=name)
        self.right = EmissionRight(lease, self.store, lasting=LASTING, arriving=ARRIVING, clock=lambda: self.now)
        self.worker = IndexWorker(kafka, self.store, may_emit=self.right.may_send)
        self.worker.start()
        stack.callback(self.worker.stop)

    def follow(self, events: list[Events]) -> None:
        self.worker.set_plans([flow.plan for flow in events])

    def stand_by(self) -> None:
        self.follow([])
        wait_for(lambda: not self.worker.positions(), "the end of following")

    def read_all(self, events: list[Events], *, unsent: bool = False) -> None:
        """Wait until all events are read, and their rows are on their topics, or can't be sent."""
        self.follow(events)
        wanted = {flow.plan.topic: (flow.sent, unsent) for flow in events}
        wait_for(
            lambda: {s.topic: (sum(s.offsets.values()), s.unsent) for s in self.worker.positions()} == wanted,
            "all events",
        )


@pytest.mark.filterwarnings("ignore:aggregate")
@pytest.mark.timeout(600)
def test_rows_are_right_whichever_server_writes_them(kafka: str, postgres: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        writer = stack.enter_context(TopicWriter(kafka, timeout_s=TIMEOUT_S))
        events = [Events(name, secrets.token_hex(4), writer, kafka) for name in CASES]
        one, two = [Server(stack, name, tmp_path, kafka, postgres) for name in ("one", "two")]

        # The first server that claims the right has it, also at its next start; the other one doesn't.
        for server in (one, two, one):
            server.right.claim_or_renew()
        assert (one.right.may_send(), two.right.may_send()) == (True, False)
        for flow in events:
            flow.send(40)
        one.read_all(events)
        assert all(flow.check() for flow in events)

        # In the last part of its lease it sends nothing, even if no other server claims it.
        one.now += (LASTING - ARRIVING).total_seconds()
        assert not one.right.may_send()
        for flow in events:
            flow.send(20)
        one.read_all(events, unsent=True)
        one.stand_by()
        one.right.claim_or_renew()
        one.read_all(events)
        before = [flow.check() for flow in events]

        # The right passes to the other server and back; the indexes' records of emitted rows are forgotten each time.
        for giver, taker in ((one, two), (two, one)):
            giver.stand_by()
            giver.right.release()
            taker.right.claim_or_renew()
            giver.right.claim_or_renew()
            assert (giver.right.may_send(), taker.right.may_send()) == (False, True)
            for flow in events:
                flow.send(20)
            taker.read_all(events)
            after = [flow.check() for flow in events]
            assert sum(after) > sum(before)
            before = after
        assert int.from_bytes(one.store.get(TOKEN_KEY) or b"") == 3
