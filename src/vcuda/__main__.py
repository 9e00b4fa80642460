"""``python -m vcuda`` is the command ``vcuda``."""

from vcuda.cli import main

if __name__ == "__main__":
    main()
