"""The HTTP layer: requests and answers, their bodies, errors and routes."""
