"""`python -m caraway.cli`, the same as `caraway`."""

from caraway.cli import app

app()
