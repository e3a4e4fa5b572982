"""Change capture: the changes of a table, read from the log of its database, without Debezium."""
