"""What users' functions of a deployment may do by its settings, and the note of what is in force."""

from contextlib import suppress
from pathlib import Path

from caraway.config import Settings
from caraway.confinement.policy import Confinement, Report, deployment_user

# Beside the heartbeat of the engine, for `caraway status`.
NOTE = Path("run") / "functions.txt"


def confinement_of(settings: Settings) -> Confinement:
    """Return what users' functions of a deployment may do."""
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


def write_note(data_dir: Path, report: Report | None) -> None:
    """Write down what is in force, for `caraway status`."""
    # On a full disk functions run all the same.
    with suppress(OSError):
        (data_dir / NOTE).parent.mkdir(parents=True, exist_ok=True)
        (data_dir / NOTE).write_text(
            "none run: see the server's log" if report is None else str(report), encoding="utf-8"
        )


def read_note(data_dir: Path) -> str:
    """Return what is in force, or nothing if nobody has said so."""
    try:
        return (data_dir / NOTE).read_text(encoding="utf-8")
    except OSError:
        return ""
