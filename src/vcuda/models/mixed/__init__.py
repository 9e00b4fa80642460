"""Regressions for tables of any mix of kinds: numbers, counts, yes/no, ordered and other labels."""
