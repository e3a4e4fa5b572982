import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from caraway.apps.stack import jars as stack_jars
from caraway.apps.stack.jars import ensure_jars
from caraway.dataplane.streams.java import cache, ivy
from caraway.dataplane.streams.java.errors import JarsError
from caraway.dataplane.streams.java.lock import Jar, ivy_module, read_lock
from caraway.process.settings.settings import Settings

CONTENT = {"one-1.jar": b"first", "two-2.jar": b"second"}
Progress = Callable[[int, int, str], None]


def jar(name: str, revision: str, uses: set[str]) -> Jar:
    digest = hashlib.sha256(CONTENT[f"{name}-{revision}.jar"]).hexdigest()
    return Jar(organisation="org", name=name, revision=revision, uses=frozenset(uses), sha256=digest)


LOCK = (jar("one", "1", {"broker"}), jar("two", "2", {"broker", "connector"}))


class Repository:
    """A repository in place of Ivy and the network."""

    def __init__(self) -> None:
        self.content = dict(CONTENT)
        self.asked: list[list[str]] = []

    def fetch(self, jars: Sequence[Jar], scratch: Path, ivy_settings: Path, on_progress: Progress) -> Path:
        assert ivy_settings.name
        self.asked.append([jar.name for jar in jars])
        for number, wanted in enumerate(jars):
            (scratch / wanted.file_name).write_bytes(self.content[wanted.file_name])
            on_progress(number, len(jars), wanted.name)
        return scratch


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository()
    monkeypatch.setattr(cache, "fetch", repository.fetch)
    monkeypatch.setattr(stack_jars, "read_lock", lambda: LOCK)
    return repository


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", data_dir=tmp_path)


def test_the_lock_knows_a_digest_for_each_jar() -> None:
    jars = read_lock()
    assert len(jars) == len({jar.file_name for jar in jars})
    assert all(len(jar.sha256) == 64 and jar.uses <= {"broker", "connector", "compiler"} for jar in jars)
    assert {jar.name for jar in jars if "connector" in jar.uses} >= {"spark-sql-kafka-0-10_2.13", "kafka-clients"}


def test_ivy_is_asked_for_nothing_transitive() -> None:
    text = ivy_module(LOCK)
    assert text.count('transitive="false"') == len(LOCK)
    assert 'name="two" rev="2"' in text


def test_jars_are_fetched_once(repository: Repository, settings: Settings) -> None:
    told: list[str] = []
    first = ensure_jars(settings, lambda done, wanted, what: told.append(f"{done}/{wanted} {what}"))
    second = ensure_jars(settings)
    assert repository.asked == [["one", "two"]]
    assert told == ["0/2 one", "1/2 two"]
    assert first == second
    assert [path.name for path in first.broker] == ["one-1.jar", "two-2.jar"]
    assert [path.read_bytes() for path in first.connector] == [b"second"]


def test_only_what_is_missing_or_damaged_is_fetched_again(repository: Repository, settings: Settings) -> None:
    damaged = ensure_jars(settings).connector[0]
    damaged.write_bytes(b"nonsense")
    assert ensure_jars(settings).connector[0].read_bytes() == b"second"
    damaged.unlink()
    ensure_jars(settings)
    assert repository.asked == [["one", "two"], ["two"], ["two"]]


def test_other_bytes_than_the_lock_says_are_refused_by_name(repository: Repository, settings: Settings) -> None:
    repository.content["two-2.jar"] = b"evil"
    with pytest.raises(JarsError, match=r"two-2\.jar: expected SHA-256") as caught:
        ensure_jars(settings)
    assert "one-1.jar" not in str(caught.value)
    assert not (settings.cache_dir / "jars" / "two-2.jar").exists()


def test_a_jar_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho '[FAILED     ] org#two;2'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(ivy, "find_java", lambda: java)
    with pytest.raises(JarsError, match="org:two:2") as caught:
        ivy.fetch(LOCK, tmp_path, tmp_path / "settings.xml", lambda done, wanted, what: None)
    assert "CARAWAY_JARS__IVY_SETTINGS" in str(caught.value)
