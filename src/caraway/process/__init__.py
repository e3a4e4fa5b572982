"""The ground of every process: settings, logs, children, confinement, secrets, loops and private files."""
