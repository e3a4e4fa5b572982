"""Access control: the gate before all handlers, and limits by tags."""
