"""Monitoring: the watches of what is served and stored, which run in one process of a deployment."""
