"""Tables and collections, which are read in the order of a cursor."""
