"""What a process of users' functions may do, and what was in force when it started."""

import hashlib
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["required", "available", "off"]

# Numbers that systemd gives to services without an entry in /etc/passwd (DynamicUser): nobody else uses them, and they
# fit into the 65,536 users that a container has.
FIRST_USER, LAST_USER = 61184, 65519


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a process of users' functions may do.

    Attributes:
        mode: "required" refuses to run functions if a part of the confinement can't be had, "available" runs them with
            what can be had, "off" confines nothing.
        user: The number of the user that functions run as where the platform runs as root.
        network: Whether functions may open connections.
        processes: Whether functions may start processes.
        readable: Files and folders that functions may read, beside Python, its packages and the system's libraries.
        hidden: Files and folders that functions may never read, also where they lie in a readable folder.
        environment: Names of the platform's environment variables that functions see, beside a few without secrets.
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
    """What is in force in a process, in words for people.

    Attributes:
        in_force: Such as "no network".
        missing: What the confinement asks for and this system doesn't have, with the reason.
    """

    in_force: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = ", ".join(self.in_force) or "not isolated"
        return f"{text}; missing: {'; '.join(self.missing)}" if self.missing else text


def deployment_user(folder: Path) -> int:
    """Return the number of the user that runs the functions of the deployment in a data folder.

    Two deployments on one machine have different users, so that functions of one can't reach those of the other.
    """
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = [number for number in range(FIRST_USER, LAST_USER + 1) if number not in taken]
    digest = hashlib.sha256(str(folder).encode()).digest()
    return free[int.from_bytes(digest[:8], "big") % len(free)]
