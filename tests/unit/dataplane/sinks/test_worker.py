"""The worker of a sink: whatever revisions, crashes and outages happen, its changes give the table."""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.sinks.changes import Change, Row
from caraway.dataplane.sinks.replays import GONE, OUTDATED, Again, encoded
from caraway.dataplane.sinks.replays import decoded as decoded_change
from caraway.dataplane.sinks.writer import RetryLaterError
from caraway.dataplane.topics.blocks import block_of
from caraway.dataplane.topics.codec import DELETE, PUT, RETRACT
from caraway.dataplane.topics.erased_keys import ErasedKeys, encode_erasure, erasure_of
from caraway.dataplane.topics.identity import position_id, spelled
from caraway.dataplane.topics.markers import MARKER_KEY
from caraway.dataplane.topics.reader import Message
from caraway.dtypes.types import DATETIME
from caraway.dtypes.values import to_json
from caraway.errors import UnavailableError
from caraway.graph.plan.model import SinkPlan
from caraway.state.sink_replays import SENT
from tests.unit.dataplane.sinks.world import SINK, Outside, Sent, World, message, place, plan_of
from tests.unit.leased import KilledError

KEYS = ("a", "b", "c")
PARTITIONS = {"a": 0, "b": 1, "c": 0}

Table = Mapping[str, tuple[int, float, int | None]]


@st.composite
def histories(draw: st.DrawFn, *, revised: bool) -> list[Sent]:
    """Return records of a topic: late ones, repeated ones and, if `revised`, revisions and retractions."""
    sent: list[Sent] = []
    for number in range(draw(st.integers(1, 25))):
        again = draw(st.integers(0, 3))
        if sent and again == 0:
            sent.append(draw(st.sampled_from(sent)))
            continue
        if sent and again == 1 and revised:
            first = draw(st.sampled_from(sent))
            rev = bytes([draw(st.integers(0, 3))]).strip(b"\0")
            key, record_id, time = first.key, first.id, draw(st.sampled_from([first.time, draw(st.integers(1, 5))]))
        else:
            key, record_id, rev = draw(st.sampled_from(KEYS)), position_id(number, 0), b""
            time = draw(st.integers(1, 5))
        op = draw(st.sampled_from([PUT, PUT, PUT, DELETE, RETRACT] if revised else [PUT, PUT, PUT, DELETE]))
        # A revision is the same whenever it is sent, so equal ones have equal content. Only a put and a retraction may
        # have one revision.
        same = [other for other in sent if (other.id, other.rev) == (record_id, rev)]
        if known := [other for other in same if (other.op == RETRACT) == (op == RETRACT)]:
            sent.append(known[0])
            continue
        row = (key, float(draw(st.integers(0, 2))), draw(st.none() | st.integers(0, 1)))
        sent.append(Sent(key, record_id, rev, op, time, None if op == RETRACT and draw(st.booleans()) else row))
    return sent


def table_of(sent: Iterable[Sent]) -> Table:
    """Return the table by docs/inside/records.md, without the code under test: the newest version of each key."""
    versions: dict[tuple[str, bytes], Sent] = {}
    for record in sent:
        known = versions.get((record.key, record.id))
        if known is None or (record.rev, record.op != RETRACT) > (known.rev, known.op != RETRACT):
            versions[record.key, record.id] = record
    newest: dict[str, Sent] = {}
    for record in sorted(versions.values(), key=lambda each: (each.time, each.id)):
        if record.op != RETRACT:
            newest[record.key] = record
    return {
        key: (record.time, record.row[1], record.row[2])
        for key, record in newest.items()
        if record.op == PUT and record.row is not None
    }


def put(key: str, number: int, value: float = 1.0, *, time: int = 1, op: int = PUT, rev: bytes = b"") -> Sent:
    return Sent(key, position_id(number, 0), rev, op, time, (key, value, None))


def decoded(envelopes: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table that a consumer of the envelopes has; it checks each against the row before it."""
    rows: dict[str, dict[str, Any]] = {}
    for envelope in envelopes:
        payload = envelope["payload"]
        before, after = payload["before"], payload["after"]
        key = (after or before)["k"]
        assert rows.get(key) == before, envelope
        assert payload["op"] == ("d" if after is None else "c" if before is None else "u")
        assert before != after
        if after is None:
            del rows[key]
        else:
            rows[key] = after
    instants = {to_json(DATETIME)(time): time for time in range(10)}
    return {key: (instants[row["at"]], row["v"], row["n"]) for key, row in rows.items()}


def placed(plan: SinkPlan, sent: Sequence[Sent]) -> dict[int, list[Any]]:
    topic: dict[int, list[Any]] = {0: [], 1: []}
    for record in sent:
        messages = topic[PARTITIONS[record.key]]
        messages.append(message(plan, record, PARTITIONS[record.key], len(messages)))
    return topic


@pytest.mark.spec("connectors:4.2:1", "connectors:4.2:2")
@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize(("transactional", "remembers"), [(False, False), (True, False), (True, True)])
@given(data=st.data())
def test_changes_give_the_table_whatever_happens(
    revised: bool, transactional: bool, remembers: bool, data: st.DataObject
) -> None:
    sent = data.draw(histories(revised=revised))
    plan = plan_of(revised=revised)
    with tempfile.TemporaryDirectory() as folder:
        world = World(plan, Path(folder), placed(plan, sent), transactional, remembers)
        sizes = Random(data.draw(st.integers(0, 1000)))
        world.sizes = lambda: sizes.randint(0, 4)
        worker = world.worker()
        for fuse in data.draw(st.lists(st.integers(0, 12), max_size=6)):
            world.there = {p: data.draw(st.integers(0, len(m))) for p, m in world.topic.items()}
            world.there = {p: max(end, worker.offsets.get(p, 0)) for p, end in world.there.items()}
            world.fuse, world.busy = fuse, data.draw(st.integers(0, 2))
            try:
                for _ in range(data.draw(st.integers(1, 8))):
                    try:
                        world.step_of(worker)
                    except UnavailableError:
                        continue
            except KilledError:
                world.end_process()
                if data.draw(st.booleans()):
                    # The disk is another server's, which may have an old state or none.
                    world.other_disk(data.draw(st.booleans()))
                worker = world.worker()
        world.there, world.fuse, world.busy = {}, 10**9, 0
        world.write_all(worker)
        assert decoded(world.once()) == table_of(sent)
        repeated = Counter(place(envelope) for envelope in world.received)
        if transactional:
            assert not repeated or max(repeated.values()) == 1
        # A later server without any state sends nothing more.
        count = len(world.received)
        worker.stop()
        world.other_disk(False)
        world.write_all(world.worker())
        assert len(world.received) == count


def world_of(folder: Path, sent: Sequence[Sent], *, transactional: bool = False, **options: Any) -> World:
    plan = plan_of(**options)
    return World(plan, folder, placed(plan, sent), transactional)


def ops(envelopes: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    return [(envelope["payload"]["op"], *place(envelope)) for envelope in envelopes]


SENT_AGAIN = [("c", 0, 0), ("d", 0, 1), ("d", 0, 1), ("c", 0, 2)]


@pytest.mark.parametrize(
    ("value", "end", "came"),
    [
        # A consumer has seen the position of the insert, so it would apply the delete alone.
        pytest.param(7.0, 3, [("c", 0, 0), ("u", 0, 2), ("u", 0, 2)], id="merged before"),
        # If they were merged later, a row that comes back as it was would be missing, since its insert is left out.
        pytest.param(1.0, 2, SENT_AGAIN, id="alone before an equal row"),
        pytest.param(2.0, 2, SENT_AGAIN, id="alone before another row"),
    ],
)
def test_changes_that_were_sent_before_a_crash_are_sent_again_as_they_were(
    tmp_path: Path, value: float, end: int, came: list[tuple[str, int, int]]
) -> None:
    sent = [put("a", 0), put("a", 1, op=DELETE, time=2), put("a", 2, value, time=3)]
    world = world_of(tmp_path, sent, revised=False)
    world.there = {0: 1}
    worker = world.worker()
    world.write_all(worker)
    # The position of the end of the batch is saved, then the change is sent, then the process ends.
    world.there, world.fuse = {0: end}, 2
    with pytest.raises(KilledError):
        world.step_of(worker)
    world.end_process()
    world.there, world.fuse, world.sizes = {}, 10**9, lambda: 1
    world.write_all(world.worker())
    assert ops(world.received) == came
    assert decoded(world.once()) == table_of(sent)


def test_a_state_that_is_ahead_of_the_position_is_made_anew(tmp_path: Path) -> None:
    sent = [put("a", 0, 1.0), put("a", 1, 2.0, time=2)]
    world = world_of(tmp_path, sent, transactional=True)
    worker = world.worker()
    world.write_all(worker)
    worker.stop()
    # The system outside was restored from a backup, and so was Postgres.
    world.acknowledged, world.saved = {0: 1}, None
    del world.received[1:]
    world.write_all(world.worker())
    assert decoded(world.received) == table_of(sent)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_system_that_remembers_gets_again_what_it_lost(tmp_path: Path, left: int) -> None:
    """It was restored from a backup, or has lost all, while the position in Postgres is the newest one."""
    sent = [put("a", 0, 1.0), put("b", 1, 3.0), put("a", 2, 2.0, time=2), put("a", 3, op=DELETE, time=3)]
    world = world_of(tmp_path, sent, transactional=True)
    world.remembers = True
    worker = world.worker()
    world.write_all(worker)
    worker.stop()
    world.acknowledged = {0: left, 1: 0}
    world.received = [each for each in world.received if place(each) < (0, left)]
    world.write_all(world.worker())
    assert decoded(world.received) == table_of(sent)


def test_a_system_that_remembers_gets_positions_without_changes(tmp_path: Path) -> None:
    """Otherwise the state would be ahead of the position, and each restart would read the topic anew."""
    world = world_of(tmp_path, [put("a", 0), put("a", 0)], transactional=True)
    world.remembers, world.sizes = True, lambda: 1
    world.write_all(world.worker())
    assert (len(world.received), world.acknowledged) == (1, {0: 2, 1: 0})


@pytest.mark.parametrize("system", ["plain", "transactional", "remembering"])
@pytest.mark.parametrize("others", [1, 4], ids=["the-topic-is-shorter", "the-topic-is-longer"])
def test_records_in_the_places_of_lost_ones_are_written_and_the_loss_is_told(
    tmp_path: Path, system: str, others: int
) -> None:
    """A broker that has lost its power goes on where its disk ends, and a sink must not wait behind that."""
    world = world_of(tmp_path, [put("a", number, time=number) for number in range(1, 4)])
    world.transactional, world.remembers = system != "plain", system == "remembering"
    world.run()
    assert world.losses == []
    world.lose(0, 1)
    new = [put("a", 10 + number, 7.0 + number, time=10 + number) for number in range(others)]
    world.topic[0] += [message(world.plan, sent, 0, 1 + number) for number, sent in enumerate(new)]
    written = len(world.received)
    worker = world.run()
    (told,) = world.losses
    assert "0@1 to 3" in told
    payloads = [envelope["payload"] for envelope in world.received[written:]]
    assert [payload["after"]["v"] for payload in payloads][-1] == new[-1].row[1]  # type: ignore[index]
    # The row before the first change is that of the record that is left.
    assert payloads[0]["before"]["v"] == 1.0
    assert worker.offsets == {0: 1 + others, 1: 0}
    # It is told once.
    world.run()
    assert len(world.losses) == 1


def test_a_server_whose_state_has_lost_records_makes_it_anew(tmp_path: Path) -> None:
    """Another server may have noticed the loss and gone on, so the position says nothing of it any more."""
    world = world_of(tmp_path, [put("b", 1, 5.0), put("b", 2, 6.0, time=2)])
    world.run()
    first = world.folder
    world.other_disk(keeps_old=False)
    world.lose(1, 1)
    world.topic[1].append(message(world.plan, put("b", 3, 7.0, time=3), 1, 1))
    world.run()
    assert len(world.losses) == 1
    world.folder = first
    world.topic[1].append(message(world.plan, put("b", 4, 8.0, time=4), 1, 2))
    world.write_all(world.worker())
    # The row before isn't that of the lost record, which this server's state had at the same offset.
    payload = world.received[-1]["payload"]
    assert (payload["before"]["v"], payload["after"]["v"]) == (7.0, 8.0)
    assert len(world.losses) == 1


def test_another_leader_without_a_loss_is_nothing_to_tell(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put("a", number, time=number) for number in range(1, 4)])
    world.run()
    world.lose(0, 3)
    world.topic[0].append(message(world.plan, put("a", 9, time=9), 0, 3))
    for _ in range(2):
        world.run()
    assert world.losses == []
    assert [place(envelope) for envelope in world.received].count((0, 3)) == 1


def further_than_saved(folder: Path, *, remembers: bool) -> World:
    """Return a world after a new leader, whose system has a change of its epoch that the saved position lacks."""
    world = world_of(folder, [put("a", number, time=number) for number in range(1, 4)])
    world.transactional, world.remembers = True, remembers
    world.run()
    world.lose(0, 3)
    world.topic[0].append(message(world.plan, put("a", 9, 9.0, time=9), 0, 3))
    worker, world.fuse = world.worker(), 1
    with pytest.raises(KilledError):
        world.write_all(worker)
    world.end_process()
    assert world.saved is not None
    assert (world.acknowledged[0], world.saved.written[0]) == (4, 3)
    world.fuse = 10**9
    return world


@pytest.mark.parametrize("remembers", [False, True])
def test_a_system_that_is_further_than_the_saved_position_gets_nothing_again_after_another_leader(
    tmp_path: Path, remembers: bool
) -> None:
    """The saved epoch is that of the saved position, and says nothing of the records behind it."""
    world = further_than_saved(tmp_path, remembers=remembers)
    for _ in range(2):
        world.run()
    assert world.losses == []
    assert [place(envelope) for envelope in world.received].count((0, 3)) == 1


@pytest.mark.parametrize("remembers", [False, True])
def test_a_loss_before_the_saved_position_is_told_although_the_system_is_further(
    tmp_path: Path, remembers: bool
) -> None:
    world = further_than_saved(tmp_path, remembers=remembers)
    world.lose(0, 2)
    world.topic[0] += [message(world.plan, put("a", 10 + n, 7.0 + n, time=10 + n), 0, n) for n in range(2, 6)]
    world.run()
    (told,) = world.losses
    assert "0@2 to 4" in told
    assert [place(envelope) for envelope in world.received[4:]] == [(0, n) for n in range(2, 6)]


def test_a_restarted_server_reads_what_is_new_only(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put("a", number, time=number) for number in range(1, 5)])
    world.there = {0: 3}
    worker = world.worker()
    world.write_all(worker)
    world.end_process()
    assert world.opened().positions() == {0: 3}
    assert worker.offsets == {0: 3, 1: 0}


def test_a_record_without_a_row_or_outside_of_the_bounds_makes_no_change(tmp_path: Path) -> None:
    sink = replace(SINK, since_us=2, until_us=4)
    world = world_of(tmp_path, [put("a", number, float(number), time=number) for number in range(1, 6)], sink=sink)
    world.topic[1] = [(MARKER_KEY, b"token", 1, 0), (None, b"no record", 1, 1)]
    world.write_all(world.worker())
    assert ops(world.received) == [("c", 0, 1), ("u", 0, 2)]


def test_rows_without_keys_are_inserted_once_and_revised(tmp_path: Path) -> None:
    sent = [put("a", 0), put("a", 1), put("a", 0), put("a", 1, 5.0, rev=b"1"), put("a", 0, op=RETRACT, rev=b"1")]
    world = world_of(tmp_path, sent, keyed=False)
    world.write_all(world.worker())
    assert ops(world.received) == [("c", 0, offset << 16) for offset in (0, 1)] + [("u", 0, 3 << 16), ("d", 0, 4 << 16)]
    plain = world_of(tmp_path / "plain", sent[:3], keyed=False, revised=False)
    plain.write_all(plain.worker())
    assert ops(plain.received) == [("c", 0, 0), ("c", 0, 1 << 16)]


def blocks(plan: SinkPlan, sent: Sequence[Sent], sizes: Sequence[int]) -> list[Message]:
    """Return the messages of records without keys: of puts that follow each other so many are one message."""
    made: list[Message] = []
    held: list[bytes] = []
    for number, record in enumerate(sent):
        value = message(plan, record, 0, 0)[1]
        assert value is not None
        held.append(value)
        is_full = len(held) >= sizes[len(made) % len(sizes)]
        if is_full or record.op != PUT or number + 1 == len(sent) or sent[number + 1].op != PUT:
            made.append((None, held[0] if len(held) == 1 else block_of(held), 0, len(made)))
            held = []
    return made


@pytest.mark.parametrize("revised", [False, True])
@given(data=st.data())
def test_records_in_blocks_give_the_rows_whatever_happens(revised: bool, data: st.DataObject) -> None:
    sent = [record for record in data.draw(histories(revised=revised)) if record.op != DELETE]
    plan = plan_of(keyed=False, revised=revised)
    with tempfile.TemporaryDirectory() as folder:
        sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        world = World(plan, Path(folder), {0: blocks(plan, sent, sizes)})
        for fuse in [*data.draw(st.lists(st.integers(0, 12), max_size=4)), 10**9]:
            world.fuse = fuse
            with suppress(KilledError):
                world.write_all(world.worker())
            world.end_process()
        rows: Counter[str] = Counter()
        # A consumer leaves out what has a partition and an offset that it has seen.
        for payload in (envelope["payload"] for envelope in world.once()):
            rows[orjson.dumps(payload["before"]).decode()] -= 1
            rows[orjson.dumps(payload["after"]).decode()] += 1
            del rows["null"]
            assert min(rows.values(), default=0) >= 0
        instants = {to_json(DATETIME)(time): time for time in range(10)}
        left = Counter((instants[row["at"]], row["v"], row["n"]) for row in map(orjson.loads, rows.elements()))
        assert left == Counter(table_of(replace(record, key=record.id.hex()) for record in sent).values())


def test_a_block_with_a_record_that_can_not_be_read_makes_the_changes_of_the_others(tmp_path: Path) -> None:
    world = world_of(tmp_path, [], keyed=False)
    good = [message(world.plan, put("a", number), 0, 0)[1] or b"" for number in range(2)]
    world.topic[0] = [(None, block_of([good[0], b"\x91\x01", good[1]]), 0, 0), (None, b"\xdc\x00\x02" + good[0], 0, 1)]
    world.write_all(world.worker())
    assert ops(world.received) == [("c", 0, 0), ("c", 0, 2)]
    assert [(dataset, spelled(each.position)) for dataset, each in world.left_out] == [
        ("Table", "0@0+1"),
        ("Table", "0@1"),
    ]


def test_an_outage_sends_nothing_twice_and_refused_changes_become_dead_letters(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put(key, number) for number, key in enumerate("acac")])
    world.busy, world.refused = 3, frozenset("c")
    worker = world.worker()
    for _ in range(3):
        with pytest.raises(RetryLaterError):
            world.step_of(worker)
    world.write_all(worker)
    assert (ops(world.received), worker.refused, worker.refusal) == ([("c", 0, 0)], 1, "no")
    assert [letter["after"]["k"] for letter in world.letters] == ["c"]
    assert world.closed == 0


def test_a_sink_that_can_not_be_opened_yet_is_closed_and_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path, [put("a", 0), put("a", 1, 2.0, time=2)], transactional=True)
    world.acknowledged = {0: 1}
    worker = world.worker()
    with monkeypatch.context() as patch:
        patch.setattr(Outside, "positions", Mock(side_effect=RetryLaterError("busy")))
        for opened in (1, 2):
            with pytest.raises(RetryLaterError):
                world.step_of(worker)
            # The feed and the system.
            assert world.closed == 2 * opened
    assert worker.guarantee == ""
    world.write_all(worker)
    # It goes on from where the system is.
    assert ops(world.received) == [("u", 0, 1)]


def test_another_server_that_has_the_lease_is_left_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put("a", 0)])
    worker = world.worker()
    world.taken_over = True
    assert not worker.step()
    assert (worker.owned, world.received) == (False, [])
    world.taken_over = False
    world.write_all(worker)
    world.owner_token += 1
    world.topic[0].append(message(world.plan, put("a", 9, 3.0, time=9), 0, 1))
    world.now += 10
    assert not worker.step()
    assert len(world.received) == 1


def test_a_sink_with_an_interval_writes_a_round_then_waits(tmp_path: Path) -> None:
    sink = replace(SINK, every_us=3_600_000_000)
    world = world_of(tmp_path, [put("a", number, float(number), time=number) for number in range(1, 8)], sink=sink)
    world.there, world.sizes = {0: 3, 1: 0}, lambda: 2
    worker = world.worker()
    world.write_all(worker)
    first, world.there = world.now, {}
    world.write_all(worker)
    assert world.now - first >= 3_600
    assert len(world.received) == 7


def test_rows_of_erased_keys_are_neither_sent_nor_kept(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put("a", 0), put("c", 1)])
    plan, topic = world.plan, world.plan.topic.name
    erased = ErasedKeys(lambda: {"key": b"secret"})
    worker = world.worker(erased)
    world.write_all(worker)
    erasure = erasure_of(topic, plan.topic.schema.keys, ["a"], "key", b"secret")
    world.topic[0].append((*encode_erasure(erasure), 0, 2))
    world.topic[0].append(message(plan, put("a", 3, 4.0, time=4), 0, 3))
    world.write_all(worker)
    assert len(world.received) == 2
    worker.stop()
    database = sqlite3.connect(tmp_path / "state.sqlite")
    assert [key for (key,) in database.execute("SELECT key FROM entries")] == [b"\x91\xa1c"]
    database.close()


def upserted(envelopes: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of a consumer that puts and deletes rows by key as envelopes come."""
    rows: dict[str, dict[str, Any]] = {}
    for envelope in envelopes:
        before, after = envelope["payload"]["before"], envelope["payload"]["after"]
        rows.pop((after or before)["k"], None)
        if after is not None:
            rows[after["k"]] = after
    instants = {to_json(DATETIME)(time): time for time in range(10)}
    return {key: (instants[row["at"]], row["v"], row["n"]) for key, row in rows.items()}


def ask_for_all(world: World, letters: dict[tuple[int, int], int]) -> set[tuple[int, int]]:
    """Ask for all changes that were refused, unless they wait or were sent, and return those asked for in doubt.

    A change may have several dead letters. If a server ended before it noted what became of a change, only a newer dead
    letter of it can be asked for; `letters` has the number of the last one.
    """
    asked = {(each.change.partition, each.change.offset): each for each in world.asked if each.change is not None}
    doubtful: set[tuple[int, int]] = set()
    for letter, change in enumerate(world.refusals):
        where = (change.partition, change.offset)
        known = asked.get(where)
        if known is not None:
            outcome = world.outcomes.get(known.number)
            if outcome == SENT or (outcome is None and known.number > world.settled):
                continue
            if outcome is None:
                if letter <= letters[where]:
                    continue
                doubtful.add(where)
        asked[where] = again = Again(len(world.asked) + 1, change)
        letters[where] = letter
        world.asked.append(again)
    return doubtful


@settings(max_examples=40)
@pytest.mark.parametrize("revised", [False, True])
@pytest.mark.parametrize(("transactional", "remembers"), [(False, False), (True, False), (True, True)])
@given(data=st.data())
def test_refused_changes_that_are_sent_again_give_the_table(
    revised: bool, transactional: bool, remembers: bool, data: st.DataObject
) -> None:
    sent = data.draw(histories(revised=revised))
    plan = plan_of(revised=revised)
    with tempfile.TemporaryDirectory() as folder:
        world = World(plan, Path(folder), placed(plan, sent), transactional, remembers)
        worker, letters, doubtful = world.worker(), dict[tuple[int, int], int](), set[tuple[int, int]]()
        for fuse in data.draw(st.lists(st.integers(0, 12), max_size=6)):
            world.there = {p: data.draw(st.integers(0, len(m))) for p, m in world.topic.items()}
            # The messages of an interrupted batch were there before.
            begun = {} if world.saved is None else world.saved.until
            least = {p: max(worker.offsets.get(p, 0), begun.get(p, 0)) for p in world.topic}
            world.there = {p: max(end, least[p]) for p, end in world.there.items()}
            world.fuse, world.refused = fuse, data.draw(st.frozensets(st.sampled_from(KEYS)))
            if data.draw(st.booleans()):
                doubtful |= ask_for_all(world, letters)
            try:
                for _ in range(data.draw(st.integers(1, 8))):
                    with suppress(UnavailableError):
                        world.step_of(worker)
            except KilledError:
                world.end_process()
                if data.draw(st.booleans()):
                    world.other_disk(data.draw(st.booleans()))
                worker = world.worker()
        world.there, world.fuse, world.refused = {}, 10**9, frozenset()
        world.write_all(worker)
        doubtful |= ask_for_all(world, letters)
        for _ in range(len(world.asked) * 3 + 3):
            world.step_of(worker)
        assert upserted(world.once()) == table_of(sent)
        if transactional:
            repeated = Counter(place(envelope) for envelope in world.received if place(envelope) not in doubtful)
            assert not repeated or max(repeated.values()) == 1
        assert all(world.outcomes.get(each.number) or each.number <= world.settled for each in world.asked)


def test_a_refused_change_is_sent_again_unless_a_later_one_of_its_row_counts(tmp_path: Path) -> None:
    world = world_of(tmp_path, [put("a", 0, 1.0), put("c", 1, 1.0), put("b", 2, 1.0), put("c", 3, 2.0, time=2)])
    world.refused, worker = frozenset(KEYS), world.worker()
    world.write_all(worker)
    assert (worker.refused, world.received) == (4, [])
    world.asked = [Again(number, change) for number, change in enumerate(world.refusals, start=1)]
    world.asked.append(Again(5, None))
    world.refused = frozenset("b")
    for _ in range(10):
        world.step_of(worker)
    by_place = {(each.change.partition, each.change.offset): each.number for each in world.asked if each.change}
    assert world.outcomes == {
        by_place[0, 0]: SENT,
        by_place[0, 1]: OUTDATED,
        by_place[1, 0]: "refused again: no",
        by_place[0, 2]: SENT,
        5: GONE,
    }
    # They have the positions that they had, and the worker's own aren't touched.
    assert sorted(ops(world.received)) == [("c", 0, 0), ("u", 0, 2)]
    assert worker.offsets == world.ends()
    # Dead letters that were done aren't sent again, by whichever server.
    worker.stop()
    later = world.worker()
    for _ in range(10):
        world.step_of(later)
    assert (len(world.received), world.settled) == (2, 5)


@given(st.binary(), st.none() | st.floats(), st.booleans())
def test_a_change_in_a_dead_letter_is_the_change(key: bytes, value: float | None, deletes: bool) -> None:
    row = Row(5, ("a", value, [1, {"x": b"y"}]))
    change = Change(key, row if deletes else None, None if deletes else row, 7, 3, 9)
    assert encoded(decoded_change(encoded(change))) == encoded(change)
    assert decoded_change(encoded(change)).op == change.op
