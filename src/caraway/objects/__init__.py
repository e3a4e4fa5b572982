"""The object store: files in a local folder, or in a bucket of S3, Google Cloud or Azure, that appear as a whole."""

from caraway.objects.folder import Digest, ObjectFolder, Stored

__all__ = ["Digest", "ObjectFolder", "Stored"]
