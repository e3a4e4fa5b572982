"""The Java operators against plain Java ones (jvm/test), over generated traces."""

import subprocess
from pathlib import Path

from caraway.spark.session import caraway_jar

SOURCES = Path(__file__).parents[3] / "jvm" / "test"
SEEDS = 150


def test_operators_agree_with_plain_ones(tmp_path: Path) -> None:
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    jar = str(caraway_jar())
    subprocess.run(["javac", "--release", "17", "-cp", jar, "-d", str(tmp_path), *sources], check=True)
    command = ["java", "-Xmx512m", "-cp", f"{jar}:{tmp_path}", "io.caraway.OperatorsTest", str(SEEDS)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == f"ok {SEEDS}", run.stderr[:4000]
