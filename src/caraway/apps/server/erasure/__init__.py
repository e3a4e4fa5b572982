"""Erasure of keys: requests, the records that announce them, their removal, and the places that it does not reach."""
