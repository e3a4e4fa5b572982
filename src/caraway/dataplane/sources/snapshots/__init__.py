"""Parts of all readers of table formats: rows of files with numbers, and the changes between two snapshots."""
