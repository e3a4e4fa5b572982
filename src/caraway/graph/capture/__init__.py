"""Capture of a user's function at its definition: its text, its helpers, and a pickle that runs elsewhere."""
