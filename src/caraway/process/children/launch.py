"""A program that ties itself to the process that started it, and then becomes another program.

`python launch.py --parent PID --signal N [--user NAME [--see-all]] -- program argument …`

`caraway.process.children.process` starts this file as a script, which prepares the process and then executes the
program. A supervisor with threads can't prepare it itself, since Python code isn't safe between fork and exec. The
script imports the standard library only, so it takes some 20 ms.
"""

import argparse
import ctypes
import os
import pwd
import sys
from typing import Final

# From linux/prctl.h and linux/capability.h.
PR_SET_PDEATHSIG: Final = 1
PR_SET_SECUREBITS: Final = 28
SECBIT_NO_SETUID_FIXUP: Final = 1 << 2
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CAP_DAC_READ_SEARCH: Final = 2
CAPABILITY_VERSION_3: Final = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySet(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def die_with_parent(parent: int, signal: int) -> None:
    """Have the kernel send `signal` to this process when the thread that started it ends (Linux only)."""
    if sys.platform != "linux":
        return
    _check(_libc().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0))
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def become(user: str, *, see_all: bool) -> None:
    """Drop the rights of root for good.

    Args:
        user: The user to become.
        see_all: True: keep the capability to read and enter all folders, and pass it on to the program. Postgres
            refuses to run as root, and no other user can enter a data folder below /root; without the capability, /root
            would have to be opened to everybody.

    Raises:
        SystemExit: The system doesn't grant that capability, as in most containers; the text has the remedy.
    """
    entry = pwd.getpwnam(user)
    libc = _libc() if see_all and sys.platform == "linux" else None
    if libc:
        # With this flag the change of user leaves the capabilities as they are. Without it, the system call access(2),
        # by which Postgres looks for its own programs, would disregard them.
        _granted(libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0), user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)
    if libc:
        mask = 1 << CAP_DAC_READ_SEARCH
        header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
        sets = (_CapabilitySet * 2)(_CapabilitySet(mask, mask, mask), _CapabilitySet(0, 0, 0))
        _granted(libc.capset(ctypes.byref(header), ctypes.byref(sets)), user)
        _granted(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0), user)


def main(arguments: list[str]) -> None:
    """Read the command line and become the program that it names."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--user")
    parser.add_argument("--see-all", action="store_true")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args(arguments)
    if chosen.user:
        become(chosen.user, see_all=chosen.see_all)
    # If a process changes its user, Linux clears the setting that the process gets a signal at its parent's death. So
    # this call comes after `become`.
    die_with_parent(chosen.parent, chosen.signal)
    # With this mask, only the user of the program can read the files that it creates.
    os.umask(0o077)
    os.execvp(chosen.command[0], chosen.command)  # noqa: S606 (no shell is the point)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _granted(result: int, user: str) -> None:
    """Check that the system granted a capability, and end with the remedy if it didn't."""
    try:
        _check(result)
    except OSError as error:
        sys.exit(
            f"Postgres doesn't run as root, and user {user} may not enter the folders of this installation or of its "
            f"data ({error}). Move both to where every user may enter, such as /opt, or run as another user."
        )


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
