"""Tests that a process of users' functions can compute and nothing else, as root and as an ordinary user."""

import errno
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest

from caraway.errors import InvalidInputError
from caraway.process.confinement import connections, landlock, places, system
from caraway.process.confinement.confine import MAPPED_BYTES, THREADS
from caraway.process.confinement.policy import Confinement, deployment_user
from caraway.process.confinement.process import ConfinedProcess
from caraway.process.confinement.values import packed, unpacked
from tests.other_users import python_for_all
from tests.timeouts import deadline_in
from tests.unit.process.children.waiting import eventually
from tests.unit.process.confinement.attempts import CHANGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="macOS has no means that Caraway uses; docs/operate/security.md says so"
    ),
]

# A number that no user of a test's machine has.
USER = 61300
TARGET = "tests.unit.process.confinement.attempts:serve"
SECRET = "hunter2-of-the-platform"
Try = Callable[..., str]


@contextmanager
def trying(
    policy: Confinement, memory_mb: int | None = 256, refusal: connections.Refusal | None = None
) -> Iterator[Try]:
    process = ConfinedProcess(TARGET, policy, memory_mb, refusal)

    def attempt(name: str, argument: object = "") -> str:
        deadline = deadline_in(60)
        process.channel.send(packed([name, str(argument)]), deadline)
        return str(unpacked(process.channel.receive(deadline)))

    try:
        yield attempt
    finally:
        process.end()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("secret.key", "token"):
        (folder / name).write_text(SECRET)
        # The file must stay hidden even if its mode lets every user read it.
        (folder / name).chmod(0o644)
    return folder


def test_a_policy_has_to_be_met_as_a_whole_where_it_is_required() -> None:
    with trying(Confinement(mode="required")) as attempt:
        assert attempt("scratch") == "mine"


def test_files_of_the_platform_are_out_of_reach(data: Path) -> None:
    with trying(Confinement(hidden=(data,))) as attempt:
        for path in (
            data / "secret.key",
            data / "token",
            "/etc/shadow",
            f"/proc/{os.getpid()}/environ",
            "/proc/1/environ",
        ):
            assert attempt("read", path).startswith("PermissionError"), path
        for path in (data / "mine", "/tmp/caraway-mine", "/usr/mine", Path(__file__)):
            assert attempt("write", path).startswith("PermissionError"), path
        # The process can still import modules that weren't loaded before, and use a folder of its own.
        assert attempt("import", "wave") == "module"
        assert attempt("scratch") == "mine"


def test_named_files_can_be_read_and_what_is_hidden_in_them_cannot(data: Path) -> None:
    with trying(Confinement(readable=(data,))) as attempt:
        assert attempt("read", data / "token") == SECRET
        assert attempt("write", data / "token").startswith("PermissionError")
    (data / "inner").mkdir(exist_ok=True)
    (data / "inner" / "key").write_text(SECRET)
    with trying(Confinement(readable=(data,), hidden=(data / "inner",))) as attempt:
        assert attempt("read", data / "token") == SECRET
        assert attempt("read", data / "inner" / "key").startswith("PermissionError")


def test_the_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAWAY_POSTGRES__URL", f"postgresql://caraway:{SECRET}@127.0.0.1/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("MODEL", "m7")
    with trying(Confinement(environment=("MODEL",))) as attempt:
        told = attempt("environment")
        assert SECRET not in told
        assert "CARAWAY" not in told
        assert "'MODEL=m7'" in told
        # This file has the environment with which the process was first started.
        assert SECRET not in attempt("read", "/proc/self/environ")


def test_no_descriptor_of_the_platform_is_left(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as held, trying(Confinement()) as attempt:
        os.set_inheritable(held.fileno(), True)
        # The five are its input, output and errors, its channel, and the folder that is being listed.
        assert len(attempt("descriptors").split(",")) <= 5


def test_what_was_printed_into_the_log_cannot_be_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("evidence\n")
    # A file that isn't only appended to. The program has a fork server of its own, which writes there.
    with log.open("r+") as file:
        file.seek(0, os.SEEK_END)
        # An ordinary user's Python finds no package by itself.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[4]), *sys.path])}
        subprocess.run([sys.executable, "-c", PRINTING], stdout=file, stderr=file, env=environment, check=False)
    # The fork server writes what is left of it once the program has ended.
    eventually(lambda: "and this" in log.read_text())
    assert log.read_text() == "evidence\nto be kept\nand this\n"


PRINTING = """
from tests.unit.process.confinement.test_confinement import trying, Confinement
with trying(Confinement()) as attempt:
    assert attempt("output") == "[True, True]", attempt("output")
    for number in (1, 2):
        assert attempt("overwrite", number).startswith("OSError: [Errno 29]"), attempt("overwrite", number)
"""


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_there_is_no_network_unless_it_is_allowed() -> None:
    with listening() as port:
        with trying(Confinement()) as attempt:
            assert attempt("connect", port).startswith("PermissionError")
            assert attempt("unix", "/run/docker.sock").startswith("PermissionError")
            assert "gaierror" in attempt("resolve", "localhost")
        with trying(Confinement(network=True)) as attempt:
            assert attempt("connect", port) == "done"
            assert attempt("unix", "/run/docker.sock").startswith("PermissionError")


@pytest.mark.parametrize("processes", [False, True])
def test_nobody_is_let_in_by_a_function_with_the_network(*, processes: bool) -> None:
    """A function that serves could take the platform's own port, and so the tokens of its callers."""
    with trying(Confinement(network=True, processes=processes)) as attempt:
        for way in ("TCP", "TCP without bind", "MPTCP"):
            assert attempt("serve", way).startswith("PermissionError"), way
        assert attempt("ports").startswith("PermissionError")


def test_names_can_still_be_looked_up_with_the_network() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, trying(Confinement(network=True)) as attempt:
        server.bind(("127.0.0.1", 0))
        answering = threading.Thread(target=lambda: server.sendto(b"it is me", server.recvfrom(100)[1]))
        answering.start()
        assert attempt("datagrams", server.getsockname()[1]) == "it is me"
        answering.join()
        assert "127.0.0.1" in attempt("resolve", "localhost")


def test_no_other_process_is_started_touched_or_looked_into() -> None:
    with trying(Confinement()) as attempt:
        for name in ("bomb", "program"):
            assert attempt(name).startswith("PermissionError"), name
        for name in ("kill", "trace"):
            for pid in (os.getpid(), os.getppid()):
                assert attempt(name, pid).startswith("PermissionError"), name
    # With memory for all threads that it tries to start, only their own limit stops it.
    with trying(Confinement(), None) as attempt:
        stopped, _, started = attempt("threads").rpartition(" ")
    assert stopped == "stopped after"
    assert int(started) <= 2 * THREADS


def test_a_function_changes_nothing_about_files_but_their_content() -> None:
    for policy in (Confinement(), Confinement(network=True, processes=True)):
        with trying(policy) as attempt:
            found = {name: attempt("change", name) for name in CHANGES}
            assert attempt("file") == "xbcdef"
        assert found == {
            **dict.fromkeys(CHANGES, "EPERM"),
            "memory file": "ENOSYS",
            "shared memory": errno.errorcode[errno.EOPNOTSUPP],
            "shared memory of a device": "EACCES",
            "socket to any": "EACCES",
        }


@pytest.mark.parametrize("way", ["data", "written, then only read", "like a stack", "a page of the stack"])
def test_memory_that_doesn_t_count_as_data_is_bounded(way: str) -> None:
    with trying(Confinement(), 128) as attempt:
        taken = int(attempt("hoard", way))
    # Some of what the process had mapped may have been free.
    assert taken <= 128 + (0 if way == "data" else MAPPED_BYTES >> 20) + 64


def test_functions_die_first_when_the_memory_of_the_machine_runs_out() -> None:
    with trying(Confinement()) as attempt:
        score = Path("/proc", attempt("pid"), "oom_score_adj").read_text(encoding="ascii")
    assert score == "1000\n"


def test_processes_can_be_allowed() -> None:
    with trying(Confinement(processes=True)) as attempt:
        assert attempt("bomb") == "done"
        assert attempt("program").startswith("CompletedProcess")
        assert attempt("kill", os.getpid()).startswith("PermissionError")


@pytest.mark.parametrize("processes", [False, True])
def test_no_process_of_the_same_user_is_slowed_down_or_limited(*, processes: bool) -> None:
    user = os.geteuid() or USER
    with subprocess.Popen(["sleep", "600"], user=user if os.geteuid() == 0 else None) as victim:
        try:
            limits = Path(f"/proc/{victim.pid}/limits").read_text(encoding="ascii")
            # The tests themselves may run at the lowest priority.
            scheduler = os.sched_getscheduler(victim.pid)
            with trying(Confinement(user=user, processes=processes)) as attempt:
                said = [attempt(name, victim.pid) for name in ("slow down", "limit files")]
                assert attempt("slow down", 0) == "done"
            assert Path(f"/proc/{victim.pid}/limits").read_text(encoding="ascii") == limits
            assert os.sched_getscheduler(victim.pid) == scheduler
        finally:
            victim.kill()
    assert all(text.startswith("PermissionError") for text in said), said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_becomes_the_user_of_the_deployment(tmp_path: Path) -> None:
    user = deployment_user(tmp_path)
    assert user != deployment_user(tmp_path / "other")
    with trying(Confinement(user=user)) as attempt:
        assert attempt("user") == str([(user,) * 3, (user,) * 3, []])


def test_no_capability_is_left_but_to_read_pythons_files() -> None:
    needed = [] if os.geteuid() != 0 or places.open_to_all(places.python_places()) else [system.CAP_DAC_READ_SEARCH]
    for policy in (Confinement(), Confinement(processes=True)):
        with trying(policy) as attempt:
            held = attempt("capabilities")
            # Only root may shrink the last set; programs that other users start get nothing of it.
            assert held == str([needed, needed, [], []]) or (os.geteuid() and held.startswith("[[], [], [], "))


STARTED_SOMEWHERE = """
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.process import ConfinedProcess
from caraway.process.confinement.values import packed, unpacked
if __name__ == "__main__":
    process = ConfinedProcess({target!r}, Confinement(), None)
    for name, argument in (("read", {private!r}), ("import", "wave")):
        process.channel.send(packed([name, argument]))
        print(unpacked(process.channel.receive()))
    process.end()
"""


def test_the_folder_in_which_the_platform_was_started_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "id_rsa").write_text(SECRET)
    (tmp_path / "platform_like.py").write_text(
        STARTED_SOMEWHERE.format(target=TARGET, private=str(tmp_path / "id_rsa"))
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-m", "platform_like"],
        check=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("PermissionError"), done.stdout
    assert done.stdout.endswith("\nmodule\n")


def test_off_means_off(data: Path) -> None:
    with trying(Confinement(mode="off")) as attempt:
        assert attempt("read", data / "token") == SECRET


REQUIRED = """
import sys
sys.path[:] = {path!r}
from caraway.process.confinement.policy import Confinement
from caraway.process.confinement.process import ConfinedProcess, UnconfinedError
from caraway.process.confinement.values import packed, unpacked
process = ConfinedProcess({target!r}, Confinement(), None)
assert any("can't become user" in text for text in process.report.missing), process.report
process.channel.send(packed(["capabilities", ""]))
print(unpacked(process.channel.receive()))
process.end()
try:
    ConfinedProcess({target!r}, Confinement(mode="required"), None)
except UnconfinedError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_what_is_required_and_missing_runs_nothing() -> None:
    script = REQUIRED.format(path=[p for p in sys.path if p], target=TARGET)
    # This is like a container in which root is the only user.
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    done = subprocess.run(command, check=False, cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "[[], [], [], []]" in done.stdout
    assert "users' functions don't run, since they can't be isolated here: it runs as user 0" in done.stdout
    assert "set functions.isolation=available" in done.stdout


def _search_path(python: str) -> list[str]:
    """Return the search path of that Python, followed by those of these tests and their dependencies."""
    command = [python, "-I", "-c", "import json, sys; print(json.dumps(sys.path))"]
    own: list[str] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    prefix = str(Path(sys.base_prefix))
    return own + [path for path in sys.path if path and not path.startswith(prefix)]


ORDINARY = """
import os, sys
sys.path[:] = {path!r}
os.setgroups([]); os.setresgid({user}, {user}, {user}); os.setresuid({user}, {user}, {user})
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--basetemp", {scratch!r}, {test!r}]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="it is an ordinary user already")
def test_all_of_it_as_an_ordinary_user(request: pytest.FixtureRequest) -> None:
    """Run the tests as the platform's own user, where only Landlock and the filter of calls confine the process."""
    python = python_for_all()
    if not places.open_to_all([Path(__file__), Path(pytest.__file__)]):
        pytest.skip("an ordinary user may not enter the folder of this clone or of its environment")
    user = 61000
    # Pytest's own folders belong to root and are closed to other users.
    scratch = Path(tempfile.mkdtemp(prefix="caraway-ordinary-"))
    request.addfinalizer(lambda: shutil.rmtree(scratch, ignore_errors=True))
    os.chown(scratch, user, user)
    script = ORDINARY.format(path=_search_path(python), user=user, scratch=str(scratch / "t"), test=__file__)
    environment = {"PATH": os.environ["PATH"], "HOME": str(scratch)}
    done = subprocess.run(
        [python, "-s", "-P", "-c", script],
        check=False,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Only the three tests that need root were skipped.
    assert re.search(r"^(1[2-9]|2[0-9]|3[0-9]) passed, 3 skipped", done.stdout, re.MULTILINE), done.stdout


def test_what_is_sent_comes_back_to_the_bit() -> None:
    message = [
        "done",
        [[1, -(2**63), None], [0.1, float("inf"), -0.0], ["a", "\x00"], [b"\xff"], [[1.5], {"a": [True]}]],
    ]
    assert pickle.dumps(unpacked(packed(message))) == pickle.dumps(message)


def test_keys_of_lookups_come_back_as_they_were() -> None:
    keys: list[object] = [
        2**64,
        -(2**63) - 1,
        Decimal("1.50"),
        date(2026, 1, 2),
        pd.Timestamp("2026-01-02T03:04:05+01:00"),
    ]
    found = unpacked(packed({"keys": [*keys, np.int64(7), MappingProxyType({"a": 1})]}))["keys"]
    assert found == [*keys, 7, {"a": 1}]
    assert [type(value) for value in found[:5]] == [type(value) for value in keys]
    for strange in (object(), {1: 2}, "\ud800"):
        with pytest.raises(InvalidInputError, match="can't be sent"):
            packed(["done", strange])


def test_landlock_is_there() -> None:
    # Without Landlock the tests above would not test its part.
    assert landlock.version() >= 1
