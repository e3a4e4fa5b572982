"""Offline queries from the request to files of results: their record in Postgres, their inputs, their execution."""
