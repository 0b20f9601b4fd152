"""What a family declares."""
