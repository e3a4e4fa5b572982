"""The object store: files in a local folder, or in a bucket of S3, Google Cloud or Azure, that appear as a whole."""
