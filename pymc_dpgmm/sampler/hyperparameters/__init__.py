"""Draws of parameters of base measures and priors, given the labels."""
