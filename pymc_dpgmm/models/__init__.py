"""Functions that users call inside a model: mixtures, groups, topics and processes."""
