"""What is written inside a model: mixtures, groups, topics and processes."""
