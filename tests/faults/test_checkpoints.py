"""Checkpoints that are torn, or that there is no room for."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.conftest import Traffic
from tests.integration.engine.rig import Rig
from tests.tiers import missing
from tests.timeouts import scaled


def _stop(rig: Rig) -> None:
    rig.process.send_signal(signal.SIGTERM)
    assert rig.process.wait(scaled(90)) == 0, rig.log()


def _commits(rig: Rig, job: str) -> int:
    files = (rig.folder / "checkpoints" / job / "commits").glob("*")
    return max((int(file.name) for file in files if file.name.isdigit()), default=-1)


def _wait_for_checkpoints(rig: Rig, traffic: Traffic) -> None:
    """Wait until each job has committed what it has done so far."""
    before = {job.job_id: _commits(rig, job.job_id) for job in traffic.jobs}
    rig.wait_for(lambda _: all(_commits(rig, job) > number + 1 for job, number in before.items()), 120)


@pytest.mark.parametrize("torn", ["offsets", "commits", "state", "metadata"])
def test_a_torn_checkpoint_is_reported_and_begun_anew(torn: str, rig: Rig, traffic: Traffic, tmp_path: Path) -> None:
    rig.want(traffic.jobs)
    rig.start()
    rig.wait_until_running(len(traffic.jobs), 180)
    traffic.send(0)
    _wait_for_checkpoints(rig, traffic)
    traffic.send(1)
    traffic.agree(rig, 2)
    _stop(rig)
    (joins,) = (job for job in traffic.jobs if job.job_id.startswith("left"))
    folder = tmp_path / "checkpoints" / joins.job_id
    files = [path for path in folder.rglob("*") if path.is_file() and torn in path.parts]
    # The newest of its kind is cut in the middle, and its checksum with it, as after a power cut.
    whole = {path: path.stat().st_size for path in files}
    for path, size in whole.items():
        with path.open("ab") as file:
            file.truncate(size // 2)
    rig.start()
    traffic.send(2)
    rig.wait_for(lambda beat: beat["jobs"].get(joins.job_id, {}).get("error", "") != "", 120)
    error = rig.heartbeat()["jobs"][joins.job_id]["error"]
    assert "checkpoint is damaged" in error, error
    assert "begins at the beginning of its topics" in error
    traffic.send(3)
    traffic.agree(rig)
    others = [job for job in rig.heartbeat()["jobs"] if job != joins.job_id]
    assert all(rig.heartbeat()["jobs"][job]["error"] == "" for job in others)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        missing(f"needs the right to mount: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_reported_and_when_there_is_room_all_goes_on(rig: Rig, traffic: Traffic, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with _small_disk(folder, "16m"):
        rig.want(traffic.jobs)
        rig.start()
        rig.wait_until_running(len(traffic.jobs), 180)
        traffic.send(0)
        _wait_for_checkpoints(rig, traffic)
        ballast = folder / "ballast"
        with pytest.raises(OSError, match="No space left"):
            _fill(ballast)
        traffic.send(1)
        rig.wait_for(lambda beat: any("No space left on device" in job["error"] for job in beat["jobs"].values()), 120)
        traffic.send(2)
        ballast.unlink()
        traffic.send(3)
        traffic.agree(rig)
        rig.wait_until_running(len(traffic.jobs), 180)
        _stop(rig)
