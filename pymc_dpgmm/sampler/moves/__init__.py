"""Moves that change labels, one kind or two alike in a file, and draws that go with them."""
