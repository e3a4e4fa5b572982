"""The sink that writes keys of Redis."""
