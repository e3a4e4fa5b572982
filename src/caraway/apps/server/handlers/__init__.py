"""The handlers of requests, one module for each part of the REST surface."""
