"""The sink that writes a table of Postgres."""
