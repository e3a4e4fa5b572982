"""References to secrets in definitions, the rules for names, and how a reference becomes a value."""
