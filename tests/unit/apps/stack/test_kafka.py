import json
from pathlib import Path

import pytest

from caraway.apps.stack.kafka import EmbeddedKafka


@pytest.mark.parametrize("name", ["données", "データ", "back\\slash", "📈"])
def test_the_broker_reads_the_folder_of_its_data_whatever_its_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedKafka, "_format", lambda broker: None)
    folder = tmp_path / name
    EmbeddedKafka(folder, port=1, controller_port=2, jars=(), with_password=False).prepare()
    # Java reads a file of properties as Latin-1, with the escapes that JSON has, too.
    lines = (folder / "server.properties").read_bytes().decode("latin-1").splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert json.loads(f'"{properties["log.dirs"]}"') == str(folder / "data")
