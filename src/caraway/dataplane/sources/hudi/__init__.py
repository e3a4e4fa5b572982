"""The reader of Hudi tables, which are folders of files."""
