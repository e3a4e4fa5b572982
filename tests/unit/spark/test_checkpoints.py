from pathlib import Path

from caraway.spark.jobs import forget_unfinished


def test_a_checkpoint_that_was_cut_short_in_its_first_commit_is_removed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "job"
    for folder in ("commits", "offsets", "state/0"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1")
    (checkpoint / "commits" / ".0.6e3d.tmp").write_text("v1")

    forget_unfinished(checkpoint)

    assert not checkpoint.exists()


def test_a_checkpoint_with_a_committed_batch_stays(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1")
    (tmp_path / "commits" / ".1.6e3d.tmp").write_text("v1")

    forget_unfinished(tmp_path)

    assert (tmp_path / "commits" / "0").exists()


def test_a_job_without_a_checkpoint_has_none_to_remove(tmp_path: Path) -> None:
    forget_unfinished(tmp_path / "job")

    assert not (tmp_path / "job").exists()
