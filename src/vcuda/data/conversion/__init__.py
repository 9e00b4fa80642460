"""Files and databases that Arrow does not read, as batches of rows: one module for each family of formats.

Each has a function that adds the rows to an `ArrowCopy` and returns what is to be noted. Libraries of others are
imported where a file needs them.
"""

from vcuda.data.conversion.kinds import converted_file

__all__ = ["converted_file"]
