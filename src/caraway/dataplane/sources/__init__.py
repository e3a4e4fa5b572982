"""Sources that the server reads by itself: a reader for each system, and one worker that takes rows from any reader."""
