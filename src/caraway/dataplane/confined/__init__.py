"""Connectors in processes of their own, confined to their rights, and the fleets of the workers that use them."""
