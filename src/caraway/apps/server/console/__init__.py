"""The pages of the console: what they say and how they look. The server gathers the data and checks the rights."""
