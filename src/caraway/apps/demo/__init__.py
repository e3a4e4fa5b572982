"""`caraway demo`: real flights through the whole stack, and every value checked."""
