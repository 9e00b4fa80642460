"""FITTING: `fit`, and how it gets from options to a posterior."""
