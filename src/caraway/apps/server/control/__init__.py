"""The only way to change a deployment: commits, and the branches on which they are made."""
