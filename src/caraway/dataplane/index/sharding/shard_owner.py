"""Ownership of shards: a server opens, owns and closes shards of an index, and answers reads of those that it owns.

One thread calls `reconcile` at short intervals. In each round the server renews its membership, reads the owners, opens
the shards that it should own, claims those that have caught up with their topics, and closes those that other servers
have claimed.

The server answers nothing after its membership has run out by its own clock. Each renewal begins to count earlier by
this clock than in Postgres, so other servers take over only afterwards. An owner that loses a shard while it is alive
goes on answering until its next round. Its answers are still right, since old and new owner follow the same topics.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import structlog

from caraway.dataplane.index.sharding.messages import Answer, Ask, Found, Moved, Refused
from caraway.dataplane.index.sharding.shard import Shard
from caraway.dataplane.index.sharding.topics import Ends
from caraway.dataplane.index.storage.intervals import latest
from caraway.errors import CarawayError, InvalidInputError, TooLargeError, UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.state.ownership.assignment import rendezvous
from caraway.state.ownership.leases import HeldLease
from caraway.state.ownership.members import node_of
from caraway.state.ownership.shards import NOTHING, Division, ShardMember, ShardProgress

LOG = structlog.get_logger(__name__)

# A membership is renewed this many times within the time that it lasts, so it survives a renewal that fails.
RENEWALS = 4


@dataclass(slots=True)
class OwnedShard:
    """A shard that this server owns.

    Attributes:
        shard: The shard.
        token: The token of its ownership.
        due: The ends that the topics had just after this server became the owner, None before they are known. The
            former owner may have answered with rows up to these ends.
        answers: True once the shard has reached `due`, so that reads may be answered.
        reported: The progress that was reported last.
    """

    shard: Shard
    token: int
    due: Ends | None = None
    answers: bool = False
    reported: Mapping[str, ShardProgress] = field(default_factory=dict)


# A function that opens the shard of a number on this server, and restores it from a snapshot if it isn't there.
Opens = Callable[[int], Shard]
# A function that runs another one, in a thread or at once, and returns the future of its result.
Starts = Callable[[Callable[[], object]], "Future[object]"]


class ShardOwner:
    """The shards of a divided index that one server owns.

    One thread calls `reconcile` and `end`; all other methods may be called from any thread.
    """

    def __init__(
        self,
        member: ShardMember,
        shards: int,
        opens: Opens,
        starts: Starts,
        *,
        address: str,
        lasting: timedelta,
        clock: Callable[[], float],
    ) -> None:
        """Prepare; no shard is owned before `reconcile`.

        Args:
            member: This server as a member of those that share the index.
            shards: The number of shards.
            opens: Opens a shard, which may take long.
            starts: Runs a function that may take long.
            address: The address at which other servers reach this one.
            lasting: The time after which, without a renewal, others may take over.
            clock: Returns the time in seconds.
        """
        self.server = member.node
        self.division = NOTHING
        self._member = member
        self._shards = shards
        self._opens = opens
        self._starts = starts
        self._address = address
        self._lease = HeldLease(member.lease, lasting, renew_s=lasting.total_seconds() / RENEWALS, clock=clock)
        self._clock = clock
        self._looking = threading.Lock()
        # The lock ensures that a shard which is opened while `follow` sets new plans gets the new plans.
        self._following = threading.Lock()
        self._plans: Mapping[bytes, IndexPlan] = {}
        # The end of the membership by this server's clock; no read is answered after it. A renewal moves it only after
        # this server has given up the shards that other servers have claimed.
        self._until = float("-inf")
        self._opening: dict[int, Future[object]] = {}
        self._closing: dict[int, Future[object]] = {}
        self._open: dict[int, Shard] = {}
        self._owns: dict[int, OwnedShard] = {}

    @property
    def member(self) -> str | None:
        """The name under which this server owns shards; None if it isn't a member."""
        token = self._lease.token
        return None if token is None else self._member.with_token(token).name

    def open_shards(self) -> Mapping[int, Shard]:
        """Return the shards that are open here, whether they are owned or not."""
        return dict(self._open)

    def owned(self) -> frozenset[int]:
        """Return the shards whose reads this server answers now."""
        alive = self._clock() < self._until
        return frozenset(number for number, own in dict(self._owns).items() if alive and own.answers)

    def follow(self, plans: Sequence[IndexPlan]) -> None:
        """Index these from now on, and no others."""
        with self._following:
            self._plans = {plan.asset: plan for plan in plans}
            for shard in self._open.values():
                shard.follow(plans)

    def elsewhere(self, number: int, asset: bytes) -> int | None:
        """Return the greatest closing time of an index in shards other than `number`, as far as it is known here."""
        return latest(*(self._closing_time(other, asset) for other in range(self._shards) if other != number))

    def answer(self, ask: Ask) -> Answer:
        """Answer a read, if this server is the owner with the read's token."""
        own = self._owns.get(ask.shard)
        plan = self._plans.get(ask.asset)
        if own is None or own.token != ask.token or self._clock() >= self._until:
            return Moved(f"shard {ask.shard} of the index has another owner")
        if not own.answers or plan is None or not own.shard.is_filled(ask.asset):
            return Moved(f"shard {ask.shard} of the index has just got another owner, which catches up")
        try:
            columns, found = own.shard.reader.read(plan, ask.keys, ask.at_us, ask.columns)
        except (InvalidInputError, TooLargeError) as error:
            return Refused(str(error), invalid=True)
        except UnavailableError as error:
            return Refused(str(error))
        # The process may have been suspended during the read, so that another server owns the shard by now.
        if self._clock() >= self._until or self._owns.get(ask.shard) is not own:
            return Moved(f"shard {ask.shard} of the index has got another owner")
        return Found(columns, found)

    def look(self, seen: Division | None = None) -> Division:
        """Return the owners. They are read anew unless another thread has done that since `seen` was read. Thread safe.

        Raises `UnavailableError` if Postgres doesn't answer.
        """
        with self._looking:
            if seen is None or self.division is seen:
                self.division = self._member.look_at_shards()
            return self.division

    def reconcile(self) -> None:
        """Do the next round: renew the membership, and open, claim and close shards.

        Raises `UnavailableError` if Postgres or Kafka doesn't answer; what could be done without it has been done.
        """
        if not self._stay():
            self._until = float("-inf")
            self._owns.clear()
            return
        division = self.look()
        self._lose(division)
        # The process may have been suspended for so long that other servers have claimed its shards. So the new end of
        # the membership is set only now, after `_lose` has given up these shards.
        self._until = self._lease.until
        wanted = rendezvous(self._shards, {node_of(member) for member in division.addresses})
        mine = {shard for shard, server in wanted.items() if server == self.server}
        self._open_and_close(mine)
        failures = []
        for number in sorted(self._open):
            try:
                self._reconcile_shard(number, division, wanted=number in mine)
            except UnavailableError as error:
                # A failure of one shard must not keep the others from their round.
                failures.append(error)
        if failures:
            raise failures[0]

    def end(self) -> None:
        """Close all shards, and release them to other servers at once.

        Raises `UnavailableError` if Postgres doesn't answer; the others then wait until the membership runs out.
        """
        self._owns.clear()
        self._until = float("-inf")
        try:
            self._lease.release()
        finally:
            self._close()

    def _close(self) -> None:
        for future in [*self._opening.values(), *self._closing.values()]:
            # `exception` waits here until the opening or closing is done. If that failed, `_finish` logs the error.
            future.exception()
        self._finish()
        for shard in self._open.values():
            shard.close(forget=False)
        self._open.clear()

    def _stay(self) -> bool:
        """Claim or renew the membership, and return whether it is held. This server's last process must have ended."""
        if self._lease.token is None:
            self._member.announce(self._address)
            return self._lease.keep(succeeds=True)
        stays = self._lease.keep(succeeds=True)
        if not stays:
            LOG.warning("another process has joined the index under the name of this server", server=self.server)
        return stays

    def _lose(self, division: Division) -> None:
        """Stop answering for the shards that other servers have claimed."""
        for number, own in list(self._owns.items()):
            owner = division.owners.get(number)
            if owner is None or (owner.member, owner.token) != (self.member, own.token):
                del self._owns[number]
                LOG.info("another server has taken a shard of the index", shard=number)

    def _open_and_close(self, mine: set[int]) -> None:
        """Open the shards that this server should own, and close those that it neither should own nor owns."""
        self._finish()
        for number in mine - self._open.keys() - self._opening.keys() - self._closing.keys():
            LOG.info("opening a shard of the index", shard=number)
            self._opening[number] = self._starts(partial(self._opens, number))
        for number in self._open.keys() - mine - self._owns.keys():
            with self._following:
                shard = self._open.pop(number)
            self._closing[number] = self._starts(partial(shard.close, forget=True))
        self._finish()

    def _finish(self) -> None:
        """Keep the shards whose opening is done, and forget those whose closing is done."""
        for number, future in list(self._closing.items()):
            if future.done():
                del self._closing[number]
                if (error := future.exception()) is not None:
                    LOG.error("a shard of the index couldn't be closed", shard=number, exc_info=error)
        for number, future in list(self._opening.items()):
            if future.done():
                del self._opening[number]
                error = future.exception()
                if error is None:
                    shard: Shard = future.result()  # type: ignore[assignment]  # what `opens` returns
                    with self._following:
                        self._open[number] = shard
                        shard.follow(list(self._plans.values()))
                elif not isinstance(error, CarawayError):
                    LOG.error("a shard of the index couldn't be opened", shard=number, exc_info=error)
                else:
                    LOG.warning("a shard of the index can't be opened", shard=number, reason=str(error))

    def _reconcile_shard(self, number: int, division: Division, *, wanted: bool) -> None:
        shard = self._open[number]
        shard.reconcile()
        own = self._owns.get(number)
        lease = self._lease.token
        if own is None and wanted and self._plans and shard.is_caught_up() and lease is not None:
            owner = division.owners.get(number)
            token = self._member.with_token(lease).take_over(str(number), 0 if owner is None else owner.token)
            if token is None:
                return
            LOG.info("this server owns a shard of the index", shard=number, token=token)
            own = self._owns[number] = OwnedShard(shard, token)
        if own is None:
            return
        if not own.answers:
            if own.due is None:
                own.due = shard.ends()
            own.answers = shard.has_reached(own.due)
        if own.answers:
            progress = shard.progress()
            if progress != own.reported:
                self._member.report(number, own.token, progress)
                own.reported = progress

    def _closing_time(self, number: int, asset: bytes) -> int | None:
        own = self._owns.get(number)
        if own is not None:
            return own.shard.closing_time(asset)
        reported = self.division.progress.get(number, {}).get(asset.hex())
        return None if reported is None else reported.closing_us
