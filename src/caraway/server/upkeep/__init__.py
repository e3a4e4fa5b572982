"""What a server does by itself: archiving, erasing, expiring, writing rows of aggregates."""
