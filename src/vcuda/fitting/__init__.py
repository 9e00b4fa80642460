"""FITTING: the verb that people call, and the ways that a request can take to a posterior."""
