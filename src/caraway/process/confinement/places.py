"""The files that a process of users' functions may read: Python, its packages, the system's libraries."""

import os
import stat
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64")
SETTINGS = (
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/ssl",
    "/etc/timezone",
    # Libraries read the number of processors and the amount of memory from these.
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
# The C library needs these files to look up the names of other machines.
RESOLVING = ("/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/resolv.conf", "/run/systemd/resolve")
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")


def python_places() -> list[Path]:
    """Return the folders of Python and its packages."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    # A prefix of Python, such as /usr/local, isn't added as a whole, but only these folders of it: if the prefix is
    # "/", a function could read every file. The prefix /usr loses nothing by this, because `SYSTEM` has all of /usr.
    found |= {os.path.join(prefix, part) for prefix in prefixes for part in ("lib", "lib64", "share", "bin")}  # noqa: PTH118
    found |= {path for path in sys.path if path}
    found |= {os.path.realpath(path) for path in found}
    return sorted(Path(path) for path in found)


def around(places: Sequence[Path], hidden: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Divide `places` into parts without the hidden files and folders.

    Returns:
        The parts that may be read, and the folders above hidden files. A right to a folder covers everything below it,
        so such a folder may only be listed.
    """
    concealed = [Path(os.path.realpath(path)) for path in hidden]
    kept: list[Path] = []
    listed: list[Path] = []
    for place in places:
        real = Path(os.path.realpath(place))
        kept += _without(real, concealed, listed)
    return kept, listed


def _without(place: Path, hidden: Sequence[Path], listed: list[Path]) -> Iterator[Path]:
    if any(place.is_relative_to(path) for path in hidden):
        return
    inner = [path for path in hidden if path.is_relative_to(place)]
    if not inner:
        yield place
        return
    listed.append(place)
    with suppress(OSError):
        for entry in sorted(place.iterdir()):
            # A symbolic link is left out, since it may lead to a hidden file or folder.
            if not entry.is_symlink():
                yield from _without(entry, inner, listed)


def open_to_all(places: Sequence[Path]) -> bool:
    """Return whether every user may read `places`, and enter the folders above them."""
    return all(_is_open(place) for place in places if place.exists())


def _is_open(place: Path) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH if place.is_dir() else stat.S_IROTH
    above = all(folder.stat().st_mode & stat.S_IXOTH for folder in place.parents)
    return above and place.stat().st_mode & wanted == wanted
