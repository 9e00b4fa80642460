"""Compiled programs are kept between tests, workers and runs: compiling is most of what the suite would wait for."""

import os
from pathlib import Path

os.environ.setdefault("VCUDA_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "compiled"))
