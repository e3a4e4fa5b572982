"""Rows of datasets: decoded records, locations of identities, versions, and their removal."""
