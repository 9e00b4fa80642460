"""Model checks: how far the fitted model describes the rows, and which edges hang on it."""
