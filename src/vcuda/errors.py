"""Exceptions and warnings. The command line turns each of the errors into one sentence and exit code 2."""


class VcudaError(Exception):
    """An error that the user can fix: the message says what was expected, what came, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, without frames of the package that say nothing more.

        ``VCUDA_DEBUG=1`` shows them, as on the command line.
        """
        import os
        import traceback

        if os.environ.get("VCUDA_DEBUG", "0") not in ("", "0"):
            return traceback.format_exception(self)
        return [f"{type(self).__name__}: {self}"]


class DataError(VcudaError):
    """The table cannot be used as it is; the message names the column and, where there is one, the row."""


class KnowledgeError(VcudaError):
    """What was said about the graph contradicts itself or names a column that is not there."""


class ConfigError(VcudaError):
    """An option has a value that cannot be, or two options exclude each other."""


class RunError(VcudaError):
    """A run folder cannot be read or written."""


class ClusterError(VcudaError):
    """A cluster cannot be used, or was lost during the fit."""


class MissingExtraError(VcudaError, ImportError):
    """An optional package is needed for what was asked; the message gives the install line."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}; install it with: pip install 'vcuda[{extra}]'")


class ConvergenceWarning(UserWarning):
    """The posterior is there, but its status says not to trust it yet."""


class ModelCheckWarning(UserWarning):
    """The posterior is there, but the model checks say that edges it is sure of are likely wrong."""
