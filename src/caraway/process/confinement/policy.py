"""The policy of a process of users' functions, and the report of the confinement in force when it started."""

import hashlib
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["required", "available", "off"]

# The range of user ids that systemd reserves for services with DynamicUser. The ids have no entry in /etc/passwd, so no
# other user has them. Containers that have only 65,536 user ids have this range, too.
FIRST_USER, LAST_USER = 61184, 65519


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The rights of a process of users' functions.

    Attributes:
        mode: "required" refuses to run functions if this system lacks a part of the confinement, "available" runs them
            with the parts that it has, "off" confines nothing.
        user: The number of the user as which functions run if the platform runs as root.
        network: True if functions may open connections; nobody can connect to them.
        processes: True if functions may start processes.
        readable: Files and folders that functions may read, beside Python, its packages and the system's libraries.
        hidden: Files and folders that functions may never read, not even in a readable folder.
        environment: Names of the platform's environment variables that functions see, in addition to a few without
            secrets.
    """

    mode: Mode = "available"
    user: int = LAST_USER
    network: bool = False
    processes: bool = False
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The confinement in force in a process, in words for people.

    Attributes:
        in_force: The parts in force, such as "no network".
        missing: The parts that the policy requires and this system lacks, with the reason.
    """

    in_force: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = ", ".join(self.in_force) or "not isolated"
        return f"{text}; missing: {'; '.join(self.missing)}" if self.missing else text


def deployment_user(folder: Path) -> int:
    """Return the number of the user that runs the functions of the deployment in a data folder.

    Deployments on one machine have different users, so that functions of one can't reach processes of another.
    """
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = [number for number in range(FIRST_USER, LAST_USER + 1) if number not in taken]
    digest = hashlib.sha256(str(folder).encode()).digest()
    return free[int.from_bytes(digest[:8], "big") % len(free)]
