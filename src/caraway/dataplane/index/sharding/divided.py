"""Reads of a divided index: each key is read by the owner of its shard, on this server or by a call."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from caraway.compute.query.model import Instants, Reader, Rows
from caraway.dataplane.index.reader import hiding_times, kafka_key
from caraway.dataplane.index.sharding.keys import shard_of
from caraway.dataplane.index.sharding.messages import TIMEOUT_S, Answer, Ask, Found, Moved, MovingError, Refused
from caraway.dataplane.index.sharding.shard_calls import Call
from caraway.dataplane.index.sharding.shard_owner import ShardOwner
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.plan.model import IndexPlan
from caraway.state.ownership.members import Owned
from caraway.state.ownership.shards import Division

# A call ends after its time limit, with an answer or an error. The thread that waits for the call waits this many
# seconds longer than the limit, so that it gets that error.
LATE_S = 1.0


@dataclass(frozen=True, slots=True)
class Read:
    """A read that is divided by shards.

    Attributes:
        asks: The part of the read for each shard.
        positions: For each part, the positions of its keys among all keys.
        columns: The number of columns.
        keys: The number of all keys.
    """

    asks: list[Ask]
    positions: list[list[int]]
    columns: int
    keys: int

    def rows(self, answers: Sequence[Answer]) -> Rows:
        """Merge the answers of the shards into one.

        Raises:
            InvalidInputError: The read itself is invalid.
            MovingError: A shard has no owner now.
            UnavailableError: An owner can't read.
        """
        founds = [_found(answer) for answer in answers]
        if len(founds) == 1:
            return founds[0].columns, founds[0].found
        columns: list[list[object]] = [[None] * self.keys for _ in range(self.columns)]
        found = [False] * self.keys
        for part, positions in zip(founds, self.positions, strict=True):
            for position, there in zip(positions, part.found, strict=True):
                found[position] = there
            for column, values in zip(columns, part.columns, strict=True):
                for position, value in zip(positions, values, strict=True):
                    column[position] = value
        return columns, found


class DividedIndex(Reader[IndexPlan, bytes]):
    """Reads like an `IndexReader` of the whole index. Thread safe; only one event loop may use `read_async`."""

    asks_others = True

    def __init__(
        self,
        shard_owner: ShardOwner,
        shards: int,
        partitions: Callable[[str], int | None],
        call: Call,
        erased: ErasedKeys | None = None,
    ) -> None:
        """Read the shards that `shard_owner` has here, and by `call` those of other servers.

        Args:
            shard_owner: The shards of this server.
            shards: The number of shards.
            partitions: Returns the number of partitions of a topic, None if that isn't known yet.
            call: Calls another server.
            erased: Keys that are read as if they had never had a row. This server sees to that, since other servers may
                not know them yet.
        """
        self._shard_owner = shard_owner
        self._shards = shards
        self._partitions = partitions
        self._call = call
        self._erased = ErasedKeys(dict) if erased is None else erased
        self._to_kafka: dict[bytes, Callable[[bytes], bytes]] = {}
        # By the address of a server, the reads that the next call sends to it. The reads come from requests that the
        # event loop handles at the same time.
        self._gathered: dict[str, list[tuple[Ask, asyncio.Future[Answer]]]] = {}

    def read(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Instants, columns: Sequence[str], /) -> Rows:
        """Read the rows of `keys` as of `at_us`; see `IndexReader.read`.

        Raises:
            InvalidInputError: As in `IndexReader.read`.
            MovingError: A shard has no owner for a moment.
            UnavailableError: An owner can't read.
        """
        read = self._divided(plan, keys, at_us, columns)
        seen = self._shard_owner.division
        answers = self._asked(seen, read.asks)
        return read.rows(self._again(seen, read.asks, answers) if _moved(answers) else answers)

    async def read_async(
        self, plan: IndexPlan, keys: Sequence[bytes], at_us: Instants, columns: Sequence[str], /
    ) -> Rows:
        """Read without blocking the event loop; see `read`. Reads of one server that begin together share one call."""
        read = self._divided(plan, keys, at_us, columns)
        seen = self._shard_owner.division
        addresses = [self._address(seen, ask) for ask in read.asks]
        coming = [
            None if address is None else self._gather(address, _with_token(seen, ask))
            for address, ask in zip(addresses, read.asks, strict=True)
        ]
        # The shards of this server are read while the calls to other servers are under way.
        here = {n: self._here(seen, read.asks[n]) for n, future in enumerate(coming) if future is None}
        answers = [here[n] if future is None else await future for n, future in enumerate(coming)]
        if _moved(answers):
            answers = await asyncio.to_thread(self._again, seen, read.asks, answers)
        return read.rows(answers)

    def _divided(self, plan: IndexPlan, keys: Sequence[bytes], at_us: Instants, columns: Sequence[str]) -> Read:
        at_us = hiding_times(self._erased, plan, keys, at_us)
        partitions = self._partitions(plan.topic)
        if partitions is None:
            raise MovingError(f"the topic of {plan.dataset} isn't known here yet; try again in a moment")
        to_kafka = self._to_kafka.get(plan.asset)
        if to_kafka is None:
            to_kafka = self._to_kafka[plan.asset] = kafka_key(plan)
        positions: dict[int, list[int]] = {}
        for position, key in enumerate(keys):
            positions.setdefault(shard_of(to_kafka(key), partitions, self._shards), []).append(position)
        asks = [
            Ask(
                shard,
                0,
                plan.asset,
                [keys[position] for position in of_shard],
                at_us if isinstance(at_us, int) else [at_us[position] for position in of_shard],
                list(columns),
            )
            for shard, of_shard in positions.items()
        ]
        return Read(asks, list(positions.values()), len(columns), len(keys))

    def _address(self, division: Division, ask: Ask) -> str | None:
        """Return the address of a shard's owner, None if that is this server or if the shard has no owner."""
        owner = division.owners.get(ask.shard)
        return (
            None if owner is None or owner.member == self._shard_owner.member else division.addresses.get(owner.member)
        )

    def _here(self, division: Division, ask: Ask) -> Answer:
        return self._shard_owner.answer(_with_token(division, ask))

    def _asked(self, division: Division, asks: Sequence[Ask]) -> list[Answer]:
        """Send the parts of a read to the owners, and wait for their answers."""
        by_address: dict[str | None, list[int]] = {}
        for number, ask in enumerate(asks):
            by_address.setdefault(self._address(division, ask), []).append(number)
        here = by_address.pop(None, [])
        calls = {
            address: self._call(address, [_with_token(division, asks[number]) for number in numbers])
            for address, numbers in by_address.items()
            if address is not None
        }
        answers: dict[int, Answer] = {number: self._here(division, asks[number]) for number in here}
        for address, call in calls.items():
            numbers = by_address[address]
            answers.update(zip(numbers, _ended(call, len(numbers)), strict=True))
        return [answers[number] for number in range(len(asks))]

    def _again(self, seen: Division, asks: Sequence[Ask], answers: Sequence[Answer]) -> list[Answer]:
        """Read the owners anew, and repeat the parts that were answered `Moved` if their shard has a new owner."""
        division = self._shard_owner.look(seen)
        open_ones = [
            number
            for number, answer in enumerate(answers)
            if isinstance(answer, Moved) and _owner(division, asks[number]) != _owner(seen, asks[number])
        ]
        found = self._asked(division, [asks[number] for number in open_ones])
        known = dict(enumerate(answers)) | dict(zip(open_ones, found, strict=True))
        return [known[number] for number in range(len(asks))]

    def _gather(self, address: str, ask: Ask) -> "asyncio.Future[Answer]":
        """Add a read to the next call of a server, which is sent once the event loop has run all tasks ready now."""
        loop = asyncio.get_running_loop()
        coming: asyncio.Future[Answer] = loop.create_future()
        waiting = self._gathered.setdefault(address, [])
        if not waiting:
            loop.call_soon(self._send, address, loop)
        waiting.append((ask, coming))
        return coming

    def _send(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._gathered.pop(address)
        call = self._call(address, [ask for ask, _ in waiting])
        futures = [coming for _, coming in waiting]
        call.add_done_callback(lambda ended: loop.call_soon_threadsafe(_settle, futures, ended))


def _owner(division: Division, ask: Ask) -> tuple[Owned | None, str | None]:
    owner = division.owners.get(ask.shard)
    return owner, None if owner is None else division.addresses.get(owner.member)


def _with_token(division: Division, ask: Ask) -> Ask:
    owner = division.owners.get(ask.shard)
    return msgspec.structs.replace(ask, token=0 if owner is None else owner.token)


def _ended(call: "Future[list[Answer]]", count: int) -> list[Answer]:
    """Return the answers of a call. If the server doesn't answer, each is `Moved`, as if it had lost its shards."""
    try:
        answers = call.result(TIMEOUT_S + LATE_S)
    except (UnavailableError, TimeoutError) as error:
        return [Moved(str(error) or "its owner doesn't answer")] * count
    if len(answers) != count:
        return [Moved("its owner answers something else")] * count
    return answers


def _settle(waiting: "list[asyncio.Future[Answer]]", call: "Future[list[Answer]]") -> None:
    for coming, answer in zip(waiting, _ended(call, len(waiting)), strict=True):
        if not coming.done():
            coming.set_result(answer)


def _moved(answers: Sequence[Answer]) -> bool:
    return any(isinstance(answer, Moved) for answer in answers)


def _found(answer: Answer) -> Found:
    match answer:
        case Found():
            return answer
        case Refused(invalid=True):
            raise InvalidInputError(answer.reason)
        case Refused():
            raise UnavailableError(answer.reason)
        case Moved():
            raise MovingError(f"{answer.reason}; try again in a moment")
