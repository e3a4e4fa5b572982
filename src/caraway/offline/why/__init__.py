"""Explanations of values on a server (docs/guides/why.md): their records come from the archive and the topics."""
