"""Programs of Debian's packages in the cache, for machines that have them not: that needs no rights."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


class NotInstalledError(Exception):
    """A program isn't on this machine, and it couldn't be fetched."""


def cache() -> Path:
    """Return the folder for what is fetched once."""
    return Path(os.environ.get("CARAWAY_CACHE_DIR") or Path.home() / ".cache" / "caraway")


def libraries(root: Path) -> str:
    """Return the folders of the libraries of unpacked packages, as a path."""
    found = {str(each.parent) for folder in ("usr/lib", "lib") for each in root.glob(f"{folder}/**/*.so*")}
    return ":".join(sorted(found))


def unpack(title: str, packages: Sequence[str], root: Path) -> None:
    """Unpack the packages that the machine lacks into a folder, by apt with a list of packages of its own.

    Raises:
        NotInstalledError: They can't be fetched.
    """
    shutil.rmtree(root, ignore_errors=True)
    work = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("apt/lists/partial", "apt/cache/archives/partial", "tree"):
        (work / folder).mkdir(parents=True)
    apt = [
        "apt-get",
        *("-o", f"Dir::State::lists={work / 'apt/lists'}"),
        *("-o", f"Dir::Cache={work / 'apt/cache'}"),
        *("-o", "Debug::NoLocking=1"),
        *("-o", "Acquire::Retries=3"),
        # Root's apt fetches as another user, who may not write here.
        *("-o", "APT::Sandbox::User="),
        "-qq",
    ]
    try:
        _run([*apt, "update"], work)
        planned = _run([*apt, "--simulate", "--no-install-recommends", "install", *packages], work)
        names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        _run([*apt, "download", *names], work)
        for package in work.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(work / "tree")], work)
    except subprocess.CalledProcessError as error:
        raise NotInstalledError(f"{title} couldn't be fetched by apt: {error.stderr.strip()}") from error
    (work / "tree").rename(root)
    shutil.rmtree(work)


def _run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
