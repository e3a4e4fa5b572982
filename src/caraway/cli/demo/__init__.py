"""`caraway demo`: real flights through the whole stack, and every value checked."""

from caraway.cli.demo.command import demo

__all__ = ["demo"]
