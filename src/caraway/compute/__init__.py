"""Computations in memory, shared by the mock client, the server and offline queries."""
