"""Starting and stopping child processes."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from caraway.process.children.part import Launch
from caraway.process.children.progress import ProgressTimeout, signs_of
from caraway.process.private_files import make_folder, opener

LAUNCHER = Path(__file__).with_name("launch.py")
# Seconds between two looks of `run_to_end` at its program: whether it has ended, and whether it makes progress.
LOOK_SECONDS = 0.1


def tied(death_signal: signal.Signals) -> list[str]:
    """Return how a command begins whose process gets a signal when the thread that starts it ends (on Linux).

    Options of the launcher may follow, then `--` and the command itself.
    """
    return [sys.executable, "-I", "-S", str(LAUNCHER), f"--parent={os.getpid()}", f"--signal={int(death_signal)}"]


def start(launch: Launch, log: Path | None, death_signal: signal.Signals) -> subprocess.Popen[bytes]:
    """Start a process that ends when the calling thread ends (on Linux, by a signal of the kernel).

    Args:
        launch: The command to run.
        log: The file to which its output is appended; None: it writes to the output of this process.
        death_signal: The signal by which the kernel ends it.
    """
    launcher = tied(death_signal)
    if launch.user:
        launcher.append(f"--user={launch.user}")
    if launch.see_all:
        launcher.append("--see-all")
    make_folder(launch.folder)
    with contextlib.nullcontext() if log is None else open(log, "ab", opener=opener) as output:
        return subprocess.Popen(
            [*launcher, "--", *launch.command],
            cwd=launch.folder,
            env={**os.environ, **launch.environment},
            stdin=subprocess.PIPE if launch.pipe else subprocess.DEVNULL,
            stdout=output,
            stderr=None if log is None else subprocess.STDOUT,
            start_new_session=launch.leads,
        )


def run_to_end(launch: Launch, log: Path, seconds: float) -> str | None:
    """Run a program; return None if it succeeded, otherwise all that it printed.

    The file `log` gets the output of this run only. The program is killed after `seconds` without any progress,
    and the returned text says so.
    """
    log.unlink(missing_ok=True)
    process = start(launch, log, signal.SIGKILL)
    timeout = ProgressTimeout(seconds, lambda: signs_of(process.pid, log))
    try:
        while (given_up := timeout.given_up()) is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(LOOK_SECONDS) == 0:
                    return None
                break
    finally:
        kill_group(process)
    said = log.read_text(errors="replace").strip()
    if given_up is None:
        return said
    return f"{said}\nIt was ended after {given_up.seconds:.0f} s: {given_up.why}.".lstrip()


def stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals, seconds: float) -> bool:
    """Stop a process, then kill the rest of its group; return whether it ended by itself within the time."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(stop_signal)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        in_time = False
    else:
        in_time = True
    kill_group(process)
    return in_time


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it lives, and what it has left behind in its group, such as the JVM of a killed Python."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # `killpg` finds no group if the process doesn't lead one. So the process is also killed by its own number.
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
