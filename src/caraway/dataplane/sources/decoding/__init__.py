"""Decoders: the values of a source's records become rows."""
