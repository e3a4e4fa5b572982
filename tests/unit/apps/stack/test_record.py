from pathlib import Path

from caraway.apps.stack.record import StackRecord, read_record, write_record
from caraway.process.children.part import PartState, PartStatus


def test_a_record_comes_back_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "stack.json"
    part = PartStatus(name="kafka", state=PartState.RUNNING, pid=7, process_created_at=1.25, port=9)
    record = StackRecord(state="running", pid=1, ports={"kafka": 9}, urls={"kafka": "a:9"}, parts=(part,))
    write_record(file, record)
    assert read_record(file) == record
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"]


def test_no_record_and_a_broken_one(tmp_path: Path) -> None:
    file = tmp_path / "stack.json"
    assert read_record(file) is None
    file.write_text("{")
    assert read_record(file) is None
