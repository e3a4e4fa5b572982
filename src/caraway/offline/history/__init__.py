"""The histories of indexes: all of their records in columns, and their values as of many times."""
