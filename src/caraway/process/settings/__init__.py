"""Settings of a deployment: from the environment, a file in the data folder, or defaults."""
