"""The tables of the archive: how records are written to them, and read from them and the topics."""
