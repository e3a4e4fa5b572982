"""How old the rows are that queries read, measured by heartbeats through every pipeline, also when no rows come."""
