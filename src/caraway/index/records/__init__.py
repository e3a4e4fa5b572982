"""Rows of datasets: as they come, where they stand, their versions, and how they leave."""
