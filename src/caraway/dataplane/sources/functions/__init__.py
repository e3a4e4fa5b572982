"""Users' functions in preproc and where, in processes of servers."""
