"""Files as sources: objects of a store, or files of a folder, and tables that are made of such files."""
