"""Lineage as events of OpenLineage: what is computed from what, column by column, and when jobs start, end and fail.

`events` makes events with the official classes; `sender` sends them; `runs` knows which runs of jobs have begun;
`watch` sees commits and jobs change; `starting` makes a watch if the settings ask for one.
"""
