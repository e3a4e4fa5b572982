"""Waiting until rows that were accepted are served: how far each topic, job and index must be, and whether it is."""
