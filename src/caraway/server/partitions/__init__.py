"""An index that is divided among servers: shards, their owners, and reads of what others own (decision 23)."""
