"""``make fuzz``, or ``PYTHONPATH=tests python -m fuzzing`` in the root of the repository."""

import sys

from fuzzing import main

raise SystemExit(main(sys.argv[1:]))
