"""Queries, which compute the values of wanted features from given ones.

The server, which reads an index, and the mock client, which reads the in-process engine, use the same executor.
"""
