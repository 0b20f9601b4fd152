"""What a user passes as data, read once: after this, nobody sees the container that it came in."""
