"""Decoders: they turn the values of a broker's records into rows, by the source's format."""
