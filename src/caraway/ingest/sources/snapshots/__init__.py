"""What the readers of table formats share: rows of files with numbers, and the changes between two snapshots."""
