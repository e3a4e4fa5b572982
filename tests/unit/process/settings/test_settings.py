import os
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.kafka import KafkaSettings
from caraway.process.settings.server import ServerSettings
from caraway.process.settings.settings import Settings, load_settings
from caraway.process.settings.streams import SparkSettings


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CARAWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_defaults_are_one_machine(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings.data_dir == tmp_path / "caraway-data"
    assert settings.kafka.bootstrap_servers is None
    assert settings.postgres.url is None
    assert settings.server.url is None


def test_argument_beats_environment_beats_file_beats_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "caraway.toml").write_text("[kafka]\npartitions = 2\nheap_mb = 256\n[spark]\ndriver_memory = '2g'\n")
    monkeypatch.setenv("CARAWAY_DATA_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("CARAWAY_KAFKA__PARTITIONS", "3")
    settings = load_settings(folder)
    assert settings.data_dir == folder
    assert settings.kafka == KafkaSettings(partitions=3, heap_mb=256)
    assert settings.spark.driver_memory == "2g"


def test_file_lies_in_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caraway.toml").write_text("[server]\nport = 8123\n")
    monkeypatch.setenv("CARAWAY_DATA_DIR", str(tmp_path))
    assert load_settings().server.url == "http://127.0.0.1:8123"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("CARAWAY_SOURCES__LOCAL_FOLDERS", "/data", "sources.local_folders: a list is expected, in a variable as JSON"),
        ("CARAWAY_SOURCES__ENDPOINTS", "a=b", "sources.endpoints: names with values are expected"),
        ("CARAWAY_SERVER", "8100", "server: this is a section; set one of its settings"),
        ("CARAWAY_SERVER__PORT", "web", "server.port: it should be a valid integer"),
        ("caraway_server__port", "web", "server.port: it should be a valid integer"),
        (
            "CARAWAY_SERVR__PORT",
            "1",
            "there is no setting servr.port; did you mean server.port (CARAWAY_SERVER__PORT)?",
        ),
        (
            "CARAWAY_SERVER__PROT",
            "1",
            "there is no setting server.prot; did you mean server.port (CARAWAY_SERVER__PORT)?",
        ),
        ("CARAWAY_LOG_LEVL", "info", "there is no setting log_levl; did you mean log_level (CARAWAY_LOG_LEVEL)?"),
        ("CARAWAY_JARS__ZZZZZZ", "1", "there is no setting jars.zzzzzz; there are: ivy_settings"),
        ("CARAWAY_SPARK__CHECKPOINT_INTERVAL_SECONDS", "1", "it should be greater than or equal to 5; it is '1'"),
        ("CARAWAY_KAFKA__BOOTSTRAP_SERVERS", "broker", "kafka.bootstrap_servers: String should match pattern"),
        ("CARAWAY_SPARK__MASTER", "mesos://somewhere", "spark.master: must be local[N], spark://host:port, yarn or"),
        ("CARAWAY_SPARK__DRIVER_MEMORY", "much", "spark.driver_memory: String should match pattern"),
        ("CARAWAY_SERVER__PORT", "70000", "server.port: it should be less than or equal to 65535; it is '70000'"),
        ("CARAWAY_SPARK__JARS", "not-json", "spark.jars: a list is expected, in a variable as JSON"),
    ],
)
def test_a_mistake_in_a_variable_names_it(
    variable: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    text = str(caught.value)
    assert text.startswith(f"{variable}: ")
    assert told in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[kafka]\n\npartitons = 2\n", "3: there is no setting kafka.partitons; did you mean kafka.partitions?"),
        ("[servr]\nport = 2\n", "1: there is no setting servr; did you mean server?"),
        ("# Mine.\nserver = { port = 'x' }\n", "2: server.port: it should be a valid integer"),
        ("[sources]\nlocal_folders = '/data'\n", "2: sources.local_folders: a list is expected"),
        ("[kafka]\nheap_mb = 1\n[server]\nport = 8100\n", "2: kafka.heap_mb: it should be greater"),
    ],
)
def test_a_mistake_in_the_file_names_its_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "caraway.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'caraway.toml'}:{told}")


def test_all_mistakes_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "caraway.toml").write_text("[kafka]\npartitons = 2\n")
    monkeypatch.setenv("CARAWAY_SPARK__CHECKPOINT_INTERVAL_SECONDS", "1")
    monkeypatch.setenv("CARAWAY_SERVR__PORT", "1")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path)
    assert len(str(caught.value).splitlines()) == 3


def test_variables_of_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Kubernetes sets the first two in the containers beside services "caraway-server" and "caraway".
    for name in ("CARAWAY_SERVER_PORT", "CARAWAY_PORT_8100_TCP", "CARAWAY_URL", "CARAWAY_BRANCH", "CARAWAY_TESTS"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:8100")
    assert load_settings().server.port is None


def test_a_password_stays_out_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAWAY_POSTGRES__URL", "mysql://me:very-secret@host/db")
    with pytest.raises(ConfigurationError, match=r"postgres\.url") as caught:
        load_settings()
    assert "very-secret" not in str(caught.value)
    monkeypatch.delenv("CARAWAY_POSTGRES__URL")
    monkeypatch.setenv("CARAWAY_POSTGRES", "{'url': 'postgresql://me:very-secret@host/db'}")
    with pytest.raises(ConfigurationError, match="this is a section") as caught:
        load_settings()
    assert "very-secret" not in str(caught.value)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "caraway.toml").write_text("[kafka\n")
    with pytest.raises(ConfigurationError, match=r"caraway\.toml"):
        load_settings(tmp_path)


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [("0.0.0.0", 80, "http://127.0.0.1:80"), ("::", 80, "http://[::1]:80"), ("127.0.0.1", 0, None)],
)
def test_url_of_a_server_on_all_addresses_and_on_no_port(host: str, port: int, url: str | None) -> None:
    assert ServerSettings(host=host, port=port).url == url


@given(
    partitions=st.integers(1, 10_000),
    port=st.none() | st.integers(1, 65535),
    servers=st.none() | st.just("a:1,b:2"),
    url=st.none() | st.just("postgresql://u:p@h:5/d?x=y"),
    jars=st.lists(st.sampled_from([Path("/a b.jar"), Path("/c.jar")])),
)
def test_a_part_reads_the_settings_that_it_was_given(
    partitions: int, port: int | None, servers: str | None, url: str | None, jars: list[Path]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_dir=Path(folder),
            kafka=KafkaSettings(partitions=partitions, bootstrap_servers=servers),
            postgres={"url": url},  # type: ignore[arg-type]
            server=ServerSettings(port=port),
            spark=SparkSettings(jars=tuple(jars)),
        )
        with patch.dict(os.environ, settings.environment(), clear=True):
            assert load_settings() == settings
