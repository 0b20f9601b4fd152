"""The log density of a model given its labels, of all that is continuous, and its gradient."""
