"""The command `caraway`."""

from caraway.cli.application import app

__all__ = ["app"]
