from pathlib import Path

from caraway.dataplane.streams.spark.checkpoints import Position, forget_unfinished, next_batch, position_of


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


METADATA = '{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"2"}}'


def write_batch(checkpoint: Path, number: int, offset: int, *, committed: bool) -> None:
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    source = f'{{"orders":{{"1":{offset},"0":7}},"prices":{{"0":3}}}}'
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{METADATA}\n{source}")
    if committed:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def test_a_position_is_that_of_the_last_commit(tmp_path: Path) -> None:
    assert position_of(tmp_path) == Position(offsets={}, unfinished=False, begun={}, tasks=None)
    write_batch(tmp_path, 9, 50, committed=True)
    write_batch(tmp_path, 10, 60, committed=True)
    settled = {"orders": {1: 60, 0: 7}, "prices": {0: 3}}
    assert position_of(tmp_path) == Position(offsets=settled, unfinished=False, begun=settled, tasks=2)
    write_batch(tmp_path, 11, 70, committed=False)
    assert position_of(tmp_path) == Position(
        offsets=settled,
        unfinished=True,
        begun={"orders": {1: 70, 0: 7}, "prices": {0: 3}},
        tasks=2,
    )


def test_the_first_batch_of_a_run_is_the_one_behind_the_last_commit(tmp_path: Path) -> None:
    assert next_batch(tmp_path) == 0
    write_batch(tmp_path, 9, 50, committed=True)
    write_batch(tmp_path, 10, 60, committed=False)
    assert next_batch(tmp_path) == 10
