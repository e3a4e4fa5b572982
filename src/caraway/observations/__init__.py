"""The tables of what is observed, each of which commands, pages and notebooks show."""
