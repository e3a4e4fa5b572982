"""`caraway jars`."""

from typing import Annotated

import typer

from caraway.apps.cli.options import command
from caraway.apps.cli.output import out
from caraway.apps.cli.progress import shown_progress
from caraway.apps.stack.jars import ensure_jars
from caraway.process.settings.settings import load_settings


@command
def jars(
    paths: Annotated[bool, typer.Option("--paths", help="Print the files that Spark needs, one a line.")] = False,
    classes: Annotated[
        bool,
        typer.Option("--classes", help="Also archive the classes of Kafka and Spark, by which they start sooner."),
    ] = False,
) -> None:
    """Fetch the Java libraries of Kafka and of Spark's connector, and check each against its SHA-256."""
    settings = load_settings()
    with shown_progress() as progress:
        found = ensure_jars(settings, lambda done, wanted, what: progress(f"{what} ({done}/{wanted})", ()))
    if paths:
        for path in found.connector:
            typer.echo(path)
        return
    if classes:
        # The module imports PySpark, which takes long, so only this option imports it.
        from caraway.apps.stack.classes.making import make_class_archives  # noqa: PLC0415

        with shown_progress() as progress:
            made = make_class_archives(settings, found, lambda what: progress(what, ()))
        size = sum(path.stat().st_size for path in made)
        out.print(f"The classes of Kafka and Spark are in {made[0].parent} ({size / 1e6:.0f} MB)", soft_wrap=True)
    everything = {*found.broker, *found.connector}
    out.print(f"{len(everything)} Java libraries are in {settings.cache_dir / 'jars'}", soft_wrap=True)
