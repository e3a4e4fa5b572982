"""What answers requests, one module for each part of the REST surface."""
