"""``python -m vcuda`` is the command ``vcuda``."""

from vcuda import interrupts


def main() -> None:
    """Run one command."""
    # Before the imports of the command line, which take a third of a second.
    interrupts.install()
    from vcuda.cli import main as run

    run()


if __name__ == "__main__":
    main()
