"""Who may do what: the gate before all handlers, and limits by tags."""
