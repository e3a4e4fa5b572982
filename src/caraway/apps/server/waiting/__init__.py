"""Waiting until accepted rows are served: the positions that topics, jobs and indexes must reach."""
