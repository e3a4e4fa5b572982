"""The start that Caraway's programs have in common: their rights, their priority, their settings and their logs."""

import os
import sys
from collections.abc import Callable

from caraway.errors import CarawayError, UnavailableError
from caraway.process.logs import configure_logging
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import Settings, load_settings


def run_program(
    name: str,
    run: Callable[[Settings], int],
    *,
    niceness: int = 0,
    log: Callable[[str], None] = configure_logging,
    unavailable: int = 1,
) -> int:
    """Run a program with the settings of the environment; return its exit code.

    An error of Caraway is written to stderr in a line, without a trace.

    Args:
        name: The name of the program, with which such a line begins.
        run: Runs the program, and returns its exit code.
        niceness: The number by which the priority of the process is lowered.
        log: Prepares logging, for a level.
        unavailable: The exit code after an `UnavailableError`; that after other errors is 1.
    """
    try:
        # With this mask only this user can read the files that the program creates, whichever command has started it.
        os.umask(0o077)
        os.nice(niceness)
        settings = load_settings()
        log(settings.log_level)
        return run(settings)
    except CarawayError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return unavailable if isinstance(error, UnavailableError) else 1


def database_url(settings: Settings, program: str) -> str:
    """Return the URL of Postgres, without which a program can't work.

    Raises `ConfigurationError` if the settings don't name it.
    """
    if settings.postgres.url is None:
        raise ConfigurationError(f"postgres.url: {program} can't work without the database (set CARAWAY_POSTGRES__URL)")
    return settings.postgres.url
