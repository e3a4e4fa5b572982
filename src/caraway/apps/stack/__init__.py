"""The embedded stack: Postgres, Kafka, engine and server as supervised processes in a data folder."""
