"""The divided index: shards, their owners, and reads of shards that other servers own (decision 23)."""
