"""The reader of Iceberg tables, which are folders of files, or tables of a catalog."""
