"""A group of commands that imports the module of a command only when that command is run, completed or explained.

The page of help lists all commands from a table (`caraway.apps.cli.commands`) and imports none of them.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

OWN = "caraway"
# Commands that delete or stop something, so that no misspelling of another command may run them.
DESTRUCTIVE = frozenset({"delete", "down", "erase", "rollback"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the page of help shows it.

    Attributes:
        name: The word to type.
        where: `package.module:attribute` of a function or of a group of commands (`typer.Typer`).
        summary: The first sentence of its help.
        extra: The extra of the package (`pip install 'caraway[extra]'`) that brings all libraries it needs.
    """

    name: str
    where: str
    summary: str
    extra: str = "cli"


@dataclass(frozen=True, slots=True)
class Section:
    """Commands that are listed together on the page of help."""

    title: str
    commands: Sequence[Listed]


class LazyGroup(TyperGroup):
    """A group whose commands are imported one by one; a subclass sets `sections` and `path`.

    Attributes:
        sections: All commands of the group.
        path: The words to type before the name of a command.
    """

    sections: Sequence[Section] = ()
    path: str = OWN

    def __init__(self, **options: Any) -> None:
        """Pass the options on to typer's group."""
        super().__init__(**options)
        self._listed = {listed.name: listed for section in self.sections for listed in section.commands}
        self._loaded: set[str] = set()
        for listed in self._listed.values():
            self.commands[listed.name] = TyperCommand(listed.name, help=listed.summary, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the typed command, imported."""
        name, command, rest = self._careful(ctx, args)
        if name in self._listed:
            command = self.load(name)
        return name, command, rest

    def _careful(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the typed command. An unknown word suggests similar commands, but never one that destroys data."""
        listed = self.commands
        self.commands = {name: found for name, found in listed.items() if name not in DESTRUCTIVE or name in args[:1]}
        try:
            return super().resolve_command(ctx, args)
        finally:
            self.commands = listed

    def load(self, name: str) -> Any:
        """Import a command and return it.

        Raises:
            SystemExit: A library that it needs isn't installed; the message says what to install.
        """
        if name not in self._loaded:
            self.commands[name] = _imported(self._listed[name], self.path)
            self._loaded.add(name)
        return self.commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (click's signature)
        """Write the list of commands, by sections."""
        for section in self.sections:
            with formatter.section(section.title):
                formatter.write_dl([(listed.name, listed.summary) for listed in section.commands])


def _imported(listed: Listed, path: str) -> Any:
    module, _, attribute = listed.where.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == OWN:
            raise
        raise SystemExit(
            f"{path} {listed.name} needs {error.name}, which comes with: pip install 'caraway[{listed.extra}]'"
        ) from None
    outer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    # With a callback typer builds a group even for a single command. The command then knows its name for usage lines.
    outer.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        outer.add_typer(found, name=listed.name)
    else:
        outer.command(listed.name)(found)
    return typer.main.get_group(outer).commands[listed.name]
