"""Conversion of a source's payload to rows of a dataset: change envelopes, preproc and where, samples, casts."""
