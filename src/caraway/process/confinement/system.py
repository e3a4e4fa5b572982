"""System calls for which Python has no function (Linux)."""

import ctypes
import os
import sys
from functools import cache

# Operations from linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
# A flag from linux/sched.h.
CLONE_NEWNET = 0x40000000
# A capability from linux/capability.h.
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522

LINUX = sys.platform == "linux"


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySet(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@cache
def libc() -> ctypes.CDLL:
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return the result of a call of the C library.

    Raises `OSError` if the result is negative, so the call has failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, *arguments: object) -> None:
    """Change a property of this process. Raises `OSError` if the kernel refuses."""
    padded = [*arguments, *[0] * (4 - len(arguments))]
    checked(libc().prctl(option, *(ctypes.c_ulong(a) if isinstance(a, int) else a for a in padded)))


def syscall(number: int, *arguments: object) -> int:
    """Make a system call for which the C library has no function. Raises `OSError` if the call has failed."""
    given = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    return checked(int(libc().syscall(ctypes.c_long(number), *given)))


def unshare(flags: int) -> None:
    """Move this process from the namespaces that it shares with others into new ones.

    Raises `OSError` if the kernel refuses.
    """
    checked(libc().unshare(flags))


def keep_capabilities(*capabilities: int) -> None:
    """Remove all capabilities of this process but these, which it must have.

    Raises `OSError` if the process lacks one of them.
    """
    mask = sum(1 << capability for capability in capabilities)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    sets = (_CapabilitySet * 2)(_CapabilitySet(mask, mask, 0), _CapabilitySet(0, 0, 0))
    checked(libc().capset(ctypes.byref(header), ctypes.byref(sets)))
