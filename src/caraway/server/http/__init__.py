"""What HTTP needs: requests and answers, their bodies, errors and routes."""
