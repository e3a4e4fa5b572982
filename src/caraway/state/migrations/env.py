"""Run by Alembic: migrate over the connection that `caraway.state.migrate` holds, inside its transaction."""

from alembic import context

from caraway.state.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
