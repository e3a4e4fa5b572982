"""Secrets: the keys that seal them, their store, where definitions name them, and how functions get them."""
