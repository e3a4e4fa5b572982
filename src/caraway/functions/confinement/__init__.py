"""Processes that run users' functions and may only compute: they have no files, network, processes or secrets."""
