"""Processes that run users' functions and may only compute.

They read no files but Python's and the system's libraries, and have no network and no other processes, unless the
deployment's settings allow these. They get secrets only from the platform, by request.
"""
