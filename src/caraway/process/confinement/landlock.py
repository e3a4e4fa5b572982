"""Landlock, by which a process gives up rights to files, TCP and signals without being root (Linux 5.13 and later).

https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from caraway.process.confinement import system

# The numbers of these system calls are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

# Rights to files and to TCP's ports, and scopes, as bits from linux/landlock.h.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI_RIGHTS = (1 << 13) - 1
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2

READ = EXECUTE | READ_FILE | READ_DIR
# A rule for a file may grant only these rights. The others apply to folders, and Landlock refuses a rule that grants
# one of them to a file.
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
# The version of Landlock's kernel interface (ABI) that was the first to know each of these rights.
_ABI_REFER, _ABI_TRUNCATE, _ABI_NETWORK, _ABI_IOCTL, _ABI_SCOPE = 2, 3, 4, 5, 6


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """Return the version of the kernel's interface; 0 if there is none."""
    try:
        return system.syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(
    *,
    readable: Iterable[Path],
    listed: Iterable[Path],
    writable: Iterable[Path],
    devices: Iterable[Path],
    network: bool,
) -> None:
    """Remove all rights to files but these, to TCP's ports, and to signals for other processes.

    With `network`, TCP can connect to ports, but open none for others.

    Files and folders that are `readable` may be read, the entries of `listed` folders listed, `devices` read and
    written, and folders that are `writable` have all rights. The process must have set `no_new_privs`.

    Raises `OSError` if the kernel has no Landlock, or refuses.
    """
    abi = version()
    rights = _FIRST_ABI_RIGHTS
    for since, right in ((_ABI_REFER, _REFER), (_ABI_TRUNCATE, _TRUNCATE), (_ABI_IOCTL, _IOCTL_DEV)):
        rights |= right if abi >= since else 0
    attributes = _RulesetAttributes(rights, 0, 0)
    if abi >= _ABI_NETWORK:
        attributes.net = _BIND_TCP if network else _BIND_TCP | _CONNECT_TCP
    if abi >= _ABI_SCOPE:
        attributes.scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL
    ruleset = system.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, READ)
        for path in listed:
            _allow(ruleset, path, READ_DIR)
        for path in devices:
            _allow(ruleset, path, READ_FILE | WRITE_FILE)
        for path in writable:
            _allow(ruleset, path, rights & ~_REFER)
        system.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    # A file or folder that doesn't exist, or that this process can't see, needs no rule.
    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights if path.is_dir() else rights & _OF_FILES
            system.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathBeneath(allowed, parent)), 0)
        finally:
            os.close(parent)
