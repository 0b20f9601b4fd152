"""Read users' data, whatever its container, into one kind of table that all other modules work on."""
