from pathlib import Path

import pytest

from caraway.dataplane.streams.engine.damage import is_damage, put_aside, repairing
from caraway.errors import UnavailableError


@pytest.mark.parametrize(
    ("error", "damaged"),
    [
        ("java.lang.IllegalStateException: Incomplete log file in the offset commit log", True),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state. SQLSTATE: 58030", True),
        ("org.apache.hadoop.fs.ChecksumException: Checksum error: file:/c/offsets/3 at 0 exp: 1 got: 2", True),
        ("CANNOT_LOAD_STATE_STORE: java.io.IOException: No space left on device", False),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired", False),
        ("CANNOT_LOAD_STATE_STORE.ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY", False),
        ("PythonException: ZeroDivisionError", False),
    ],
)
def test_only_unreadable_checkpoints_are_damage(error: str, *, damaged: bool) -> None:
    assert is_damage(error) is damaged


def test_what_goes_away_by_itself_may_stand_in_the_cause_alone() -> None:
    error = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."
    assert is_damage(error, ["java.io.IOException: Input/output error"])
    assert not is_damage(error, ["x.y.Z: loading", "java.io.IOException: No space left on device"])


def test_the_last_damaged_checkpoint_is_kept(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for number in range(2):
        job.mkdir()
        (job / str(number)).touch()
        told = put_aside(job, "torn")
        assert "put aside" in told
        assert "torn" in told
        assert not job.exists()
    assert [file.name for file in (tmp_path / "job.damaged").iterdir()] == ["1"]
    assert "put aside" in put_aside(job, "torn")


def test_a_start_that_fails_for_damage_puts_the_checkpoint_aside(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    with pytest.raises(ValueError, match="else"), repairing(job):
        raise ValueError("something else")
    assert job.exists()
    with pytest.raises(UnavailableError, match="begins at the beginning of its topics"), repairing(job):
        raise ValueError("Incomplete log file")
    assert not job.exists()
