"""Tests of what needs no database: that the newest revision of the schema is the one that a server asks for."""

from importlib.resources import as_file, files

from alembic.script import ScriptDirectory

from caraway.state.migrate import NEWEST


def test_the_newest_revision_is_the_last_of_the_migrations() -> None:
    with as_file(files("caraway.state") / "migrations") as folder:
        assert ScriptDirectory(str(folder)).get_heads() == [NEWEST]
