"""Explanations of values on a server (docs/why.md): their records come from the archive and the topics."""
