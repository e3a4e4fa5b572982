"""The confinement of users' functions by a deployment's settings, and the note of the confinement in force."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from caraway.process.confinement.policy import Confinement, Report, deployment_user
from caraway.process.settings.settings import Settings

# The note is a file below the data folder, beside the heartbeat of the engine. The server writes into it which
# confinement is in force, and `caraway status` reads it.
NOTE = Path("run") / "functions.txt"


def confinement_of(settings: Settings) -> Confinement:
    """Return the confinement of users' functions in a deployment."""
    chosen = settings.functions
    objects = [] if settings.objects is None or "://" in settings.objects else [Path(settings.objects)]
    checkpoints = [settings.spark.checkpoints] if settings.spark.checkpoints else []
    return Confinement(
        mode=chosen.isolation,
        user=deployment_user(settings.data_dir) if chosen.user is None else chosen.user,
        network=chosen.network,
        processes=chosen.processes,
        readable=chosen.readable,
        hidden=(settings.data_dir, settings.key_file, *objects, *checkpoints),
        environment=chosen.environment,
    )


def confinement_of_connectors(settings: Settings) -> Confinement:
    """Return the confinement of sources and sinks: that of functions, with the network and nothing else."""
    return replace(confinement_of(settings), network=True, processes=False, readable=(), environment=())


def write_note(data_dir: Path, report: Report | None) -> None:
    """Write the note of the confinement in force, for `caraway status`."""
    # An error, such as a full disk, is ignored, because functions must run even without the note.
    with suppress(OSError):
        (data_dir / NOTE).parent.mkdir(parents=True, exist_ok=True)
        (data_dir / NOTE).write_text(
            "none run: see the server's log" if report is None else str(report), encoding="utf-8"
        )


def read_note(data_dir: Path) -> str:
    """Return the confinement in force, or nothing if there is no note."""
    try:
        return (data_dir / NOTE).read_text(encoding="utf-8")
    except OSError:
        return ""
