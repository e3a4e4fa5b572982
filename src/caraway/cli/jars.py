"""`caraway jars`."""

from typing import Annotated

import typer

from caraway.cli.output import out, plain_errors
from caraway.cli.progress import shown_progress
from caraway.config import load_settings
from caraway.stack.jars import ensure_jars


def jars(
    paths: Annotated[bool, typer.Option("--paths", help="Print the files that Spark needs, one a line.")] = False,
) -> None:
    """Fetch the Java libraries of Kafka and of Spark's connector, and check each against its SHA-256."""
    with plain_errors():
        settings = load_settings()
        with shown_progress() as progress:
            found = ensure_jars(settings, lambda done, wanted, what: progress(f"{what} ({done}/{wanted})", ()))
        if paths:
            for path in found.connector:
                typer.echo(path)
            return
        everything = {*found.broker, *found.connector}
        out.print(f"{len(everything)} Java libraries are in {settings.cache_dir / 'jars'}", soft_wrap=True)
