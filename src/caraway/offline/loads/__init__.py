"""Loads: an index is built as sorted tables by many tasks, and a server takes them in place of records."""
