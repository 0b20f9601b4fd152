"""Read users' data, whatever its container, into one kind of table that all other rooms work on."""
