"""Sessions with data warehouses, which sources read and sinks write."""
