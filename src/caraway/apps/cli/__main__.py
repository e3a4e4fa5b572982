"""`python -m caraway.apps.cli`, the same as `caraway`."""

from caraway.apps.cli import app

app()
