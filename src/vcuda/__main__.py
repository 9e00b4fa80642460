"""``python -m vcuda`` is the command ``vcuda``.

Ctrl-C is answered from the first line on. Until then Python answers it with a traceback, so this module imports nothing
before that, and ``vcuda/__init__.py`` next to nothing.
"""

import os

# What the module signal is made of; that one takes 10 ms to make enumerations.
from _signal import SIGINT, signal

EXIT_CODE, SENTENCE = 130, b"vcuda: stopped before there was a result; nothing was saved.\n"


def _leave(number: int, frame: object) -> None:
    os.write(2, SENTENCE)
    os._exit(EXIT_CODE)


signal(SIGINT, _leave)


def main() -> None:
    """Run one command."""
    from vcuda import interrupts

    # Before the imports of the command line, which take a third of a second.
    interrupts.install()
    from vcuda.cli import main as run

    run()


if __name__ == "__main__":
    main()
