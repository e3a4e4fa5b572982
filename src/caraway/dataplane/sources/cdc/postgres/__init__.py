"""Change capture from Postgres, by logical replication with its own output plugin, pgoutput."""
