"""One engine runs the jobs: leases, tokens, and checkpoints that no other engine writes to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from caraway.dataplane.streams.engine import fencing
from caraway.dataplane.streams.engine.fencing import Fence, checkpoint_for, current_checkpoint, remove_gone
from caraway.errors import UnavailableError
from tests.unit.state.ownership.members import NO_DATABASE
from tests.unit.state.ownership.test_leases import MemoryLease, Row


@dataclass
class WatchedRow(Row):
    """A lease's row without a clock, whose renewals are noticed."""

    renewed: threading.Event = field(default_factory=threading.Event)


class WatchedLease(MemoryLease):
    @override
    def renew(self, token: int, lasting: timedelta) -> bool:
        assert isinstance(self.row, WatchedRow)
        self.row.renewed.set()
        return super().renew(token, lasting)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "RENEW_SECONDS", 0.001)
    monkeypatch.setattr(fencing, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(fencing, "LASTING", timedelta(milliseconds=10))


@contextmanager
def fence(row: WatchedRow) -> Iterator[tuple[Fence, threading.Event]]:
    lost = threading.Event()
    made = Fence(WatchedLease(engine=NO_DATABASE, name="engine", owner="one", row=row), lost.set)
    yield made, lost
    made.close(release=True)


def test_a_lost_lease_is_reported_and_an_outage_is_not() -> None:
    row = WatchedRow()
    with fence(row) as (first, lost):
        assert first.claim(threading.Event(), alone=True) == 1
        row.away = True
        row.renewed.clear()
        assert row.renewed.wait(10)
        assert not lost.is_set()
        row.away, row.token = False, 2
        assert lost.wait(10)


def test_a_live_engine_in_the_same_folder_is_left_alone() -> None:
    row = WatchedRow()
    with fence(row) as (first, lost), fence(row) as (second, _):
        assert first.claim(threading.Event(), alone=True) == 1
        with pytest.raises(UnavailableError, match="another engine runs in this data folder"):
            second.claim(threading.Event(), alone=False)
        assert not lost.is_set()
        # An engine that is known to be gone isn't waited for.
        assert second.claim(threading.Event(), alone=True) == 2
        assert lost.wait(10)


def test_waiting_ends_when_the_engine_is_stopped() -> None:
    row, stopping = WatchedRow(), threading.Event()
    row.away = True
    stopping.set()
    with fence(row) as (first, _):
        assert first.claim(stopping, alone=True) is None


def test_what_is_released_is_free() -> None:
    row = WatchedRow()
    with fence(row) as (first, _):
        first.claim(threading.Event(), alone=True)
    assert row.free


def _checkpoint(folder: Path, batches: int) -> None:
    for part in ("commits", "offsets", "state/0"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            (folder / part / str(batch)).write_text(f"{folder} {batch}")
    (folder / "commits" / ".9.tmp").write_text("half")


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_token_has_the_last_ones_checkpoint_and_writes_to_its_own(tmp_path: Path) -> None:
    first = checkpoint_for(tmp_path, "job", 1)
    _checkpoint(first, 2)
    second = checkpoint_for(tmp_path, "job", 2)
    assert _files(second) == {f"{part}/{n}" for part in ("commits", "offsets", "state/0") for n in range(2)}
    # The older engine goes on, and even creates its folder anew.
    _checkpoint(first, 5)
    assert len(_files(second)) == 6
    # The next owner copies the newer checkpoint, not this one.
    assert checkpoint_for(tmp_path, "job", 3) == tmp_path / "token-3" / "job"
    assert len(_files(tmp_path / "token-3" / "job")) == 6
    assert [folder.name for folder in tmp_path.iterdir()] == ["token-3"]


def test_an_owner_with_the_same_token_continues_in_its_folder(tmp_path: Path) -> None:
    mine = checkpoint_for(tmp_path, "job", 2)
    _checkpoint(mine, 1)
    # An engine with an older token has created its folder again; the checkpoint of the newer token is used.
    _checkpoint(tmp_path / "token-1" / "job", 3)
    assert checkpoint_for(tmp_path, "job", 2) == mine
    assert len(_files(mine)) == 4


def test_jobs_have_nothing_to_do_with_each_other(tmp_path: Path) -> None:
    _checkpoint(checkpoint_for(tmp_path, "job", 1), 1)
    _checkpoint(checkpoint_for(tmp_path, "job2", 1), 2)
    checkpoint_for(tmp_path, "job", 2)
    assert len(_files(tmp_path / "token-1" / "job2")) == 7


def test_an_engine_without_tokens_goes_on_in_the_newest_folder(tmp_path: Path) -> None:
    assert current_checkpoint(tmp_path, "job") == tmp_path / "job"
    for token in (9, 10):
        _checkpoint(tmp_path / f"token-{token}" / "job", 1)
    (tmp_path / "token-11" / "job.new" / "commits").mkdir(parents=True)
    assert current_checkpoint(tmp_path, "job") == tmp_path / "token-10" / "job"


def test_paths_in_metadata_follow_the_copy(tmp_path: Path) -> None:
    """Test a fault found with two real engines: Spark names the files of a state's schema by absolute path."""
    job = checkpoint_for(tmp_path, "job", 1)
    _checkpoint(job, 1)
    metadata = job / "state" / "left" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f'v2\n{{"stateSchemaFilePath":"file:{job}/state/0/_stateSchema/0_x"}}')
    (metadata.parent / ".0.crc").write_text("sum")
    copied = checkpoint_for(tmp_path, "job", 2)
    text = (copied / metadata.relative_to(job)).read_text()
    assert f"file:{copied}/state/0/_stateSchema/0_x" in text
    assert "token-1" not in text
    assert not (copied / (metadata.parent / ".0.crc").relative_to(job)).exists()


def test_checkpoints_of_engines_without_a_lease_are_taken_over(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "job", 1)
    assert len(_files(checkpoint_for(tmp_path, "job", 1))) == 3
    assert not (tmp_path / "job").exists()


@given(cut=st.integers(min_value=0, max_value=4))
def test_a_claim_that_is_cut_short_is_made_again(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("checkpoints")
    _checkpoint(checkpoint_for(root, "job", 1), 3)
    # Incomplete copies, of this token or another.
    (root / f"token-{cut}" / "job.new" / "commits").mkdir(parents=True)
    assert len(_files(checkpoint_for(root, "job", 4))) == 9


def test_nothing_is_left_of_jobs_that_are_gone_and_all_of_others(tmp_path: Path) -> None:
    for job in ("gone", "gone2", "here"):
        _checkpoint(tmp_path / "token-3" / job, 1)
        _checkpoint(tmp_path / "token-4" / f"{job}.damaged", 1)
        _checkpoint(tmp_path / job, 1)
    _checkpoint(tmp_path / "token-5" / "gone", 1)
    assert remove_gone(tmp_path, {"gone", "gone2", "never seen"}) == {"gone", "gone2"}
    left = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("commits")}
    assert left == {"here", "token-3/here", "token-4/here.damaged"}
    assert not (tmp_path / "token-5").exists()
    assert remove_gone(tmp_path, {"gone"}) == set()
