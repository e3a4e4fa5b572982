"""The migration script that Alembic runs, over the connection and in the transaction of `caraway.state.migrate`."""

from alembic import context

from caraway.state.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
