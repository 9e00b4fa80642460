"""The HTML report: page.py puts it together from the sections that contents.py lists, each made by a module of its own.

To add a section, write a function that takes a `Request` and returns a `Section`, or None where it has nothing to say,
and add it to ``CONTENTS`` in contents.py.
"""

from vcuda.outputs.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
