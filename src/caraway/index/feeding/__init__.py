"""From topics into the index, and from the index to the jobs that read its aggregates."""
