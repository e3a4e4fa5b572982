"""What is kept in other systems: secrets of a cloud's vault."""
