"""From what a source gives to rows of a dataset: envelopes of changes, preproc and where, samples, casts."""
