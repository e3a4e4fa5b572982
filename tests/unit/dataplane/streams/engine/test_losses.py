"""The notes of topics' leaders in the checkpoint of a job, by which lost records are noticed."""

from pathlib import Path

import pytest

from caraway.dataplane.streams.engine import losses
from caraway.dataplane.streams.engine.losses import FILE, note, noted, reached, require_intact, steady
from caraway.dataplane.topics.positions import LedEnd
from caraway.dataplane.topics.truncation import Continuation, Reached
from caraway.errors import UnavailableError
from tests.unit.dataplane.streams.plans import job

PLAN = job("totals")


def committed(folder: Path) -> Path:
    (folder / "commits").mkdir(parents=True)
    return folder


def test_only_ends_whose_leader_was_the_same_at_both_looks_count() -> None:
    before = {"a": {0: LedEnd(10, 1), 1: LedEnd(10, 1)}, "b": {0: LedEnd(5, -1)}}
    now = {"a": {0: LedEnd(12, 1), 1: LedEnd(4, 2), 2: LedEnd(1, 1)}, "b": {0: LedEnd(5, -1)}, "c": {0: LedEnd(1, 1)}}
    assert steady(before, now) == {"a": {0: LedEnd(12, 1)}, "b": {}, "c": {}}


def test_positions_beyond_a_known_end_get_no_epoch() -> None:
    ends = {"in": {0: LedEnd(10, 3), 1: LedEnd(10, 3)}, "out": {0: LedEnd(7, 2)}}
    assert reached({"in": {0: 10, 1: 11, 2: 5}}, ["out", "other"], ends) == {
        "in": Reached({0: 10}, {0: 3}),
        "out": Reached({0: 7}, {0: 2}),
    }


def test_what_is_noted_is_kept_and_later_notes_change_only_what_they_know(tmp_path: Path) -> None:
    checkpoint = committed(tmp_path / "job")
    note(checkpoint, {"in": Reached({0: 10, 1: 20}, {0: 1, 1: 1}), "out": Reached({0: 5}, {0: 1})})
    note(checkpoint, {"in": Reached({1: 25}, {1: 2})})
    assert noted(checkpoint) == {"in": Reached({0: 10, 1: 25}, {0: 1, 1: 2}), "out": Reached({0: 5}, {0: 1})}
    note(checkpoint, {})
    assert [path.name for path in checkpoint.iterdir() if path.is_file()] == [FILE]


def test_a_position_keeps_the_epoch_in_which_it_was_reached(tmp_path: Path) -> None:
    """A later leader may have lost what is before the position, and taken other records since."""
    checkpoint = committed(tmp_path / "job")
    note(checkpoint, {"in": Reached({0: 10, 1: 20}, {0: 1, 1: 1})})
    note(checkpoint, {"in": Reached({0: 10, 1: 21}, {0: 2, 1: 2})})
    assert noted(checkpoint) == {"in": Reached({0: 10, 1: 21}, {0: 1, 1: 2})}


def test_a_checkpoint_without_a_committed_batch_stays_empty_and_a_damaged_file_says_nothing(tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    note(new, {"in": Reached({0: 10}, {0: 1})})
    assert list(new.iterdir()) == []
    checkpoint = committed(tmp_path / "job")
    (checkpoint / FILE).write_text('{"in": {"0"')
    assert noted(checkpoint) == noted(tmp_path / "none") == {}


def test_notes_that_cannot_be_written_end_nothing_and_the_older_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk of the checkpoints may be full."""
    checkpoint = committed(tmp_path / "job")
    note(checkpoint, {"in": Reached({0: 10}, {0: 1})})
    (checkpoint / f"{FILE}.tmp").mkdir()
    note(checkpoint, {"in": Reached({0: 11}, {0: 1})})
    assert noted(checkpoint) == {"in": Reached({0: 10}, {0: 1})}
    assert "the epochs of job can't be noted" in caplog.text


def test_an_engine_that_copies_the_checkpoint_keeps_its_own_file(tmp_path: Path) -> None:
    """Copies are hard links, so a later note must not change the copy."""
    checkpoint = committed(tmp_path / "job")
    note(checkpoint, {"in": Reached({0: 10}, {0: 1})})
    (tmp_path / "copy").hardlink_to(checkpoint / FILE)
    before = (tmp_path / "copy").read_text()
    note(checkpoint, {"in": Reached({0: 11}, {0: 1})})
    assert (tmp_path / "copy").read_text() == before


@pytest.mark.parametrize(
    ("end", "verb", "remedy"),
    [
        (8, "lacks", "Its broker has lost acknowledged records"),
        (10, "may lack", "or only the leader of a partition has changed"),
    ],
)
def test_a_loss_is_certain_only_before_the_noted_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, verb: str, remedy: str
) -> None:
    """A new leader may have written the records behind the noted position, so that the job has read what is there."""
    checkpoint = committed(tmp_path / "job")
    note(checkpoint, {"in": Reached({0: 10}, {0: 1})})
    found = {"in": Continuation("in", {0: 15}, {0: end})}
    monkeypatch.setattr(losses, "continuations", lambda *_: found)
    told: list[str] = []
    with pytest.raises(UnavailableError, match="is ahead of its topics"):
        require_intact("nowhere", PLAN, checkpoint, {"in": {0: 15}}, lambda *loss: told.append(str(loss[-1])))
    assert f"topic in {verb} records that the job {PLAN.job_id} had read (0@{end} to 15)" in told[0]
    assert remedy in told[0]
