"""The exceptions of the library; the command line shows their one-sentence messages without a traceback.

* FedwcaError               any failure that a caller may want to catch; exit code 1
    * UsageError            the request itself is wrong; exit code 2
        * UnknownComponent  no component of that kind has that name
        * InvalidConfig     a field is unknown, out of bounds, or does not fit its neighbours
    * DataError             images or labels are missing, damaged or inconsistent
        * DatasetMissing    the files are not there; the message names the layout and how to get them
    * CheckpointError       a model file does not fit the network
    * Diverged              training produced values that are not finite
    * RankFailed            another process of the same torchrun cannot go on
    * Unwritable            a file cannot be written
"""

from __future__ import annotations


class FedwcaError(Exception):
    """Any failure with a sentence meant for the user."""

    exit_code = 1


class UsageError(FedwcaError, ValueError):
    """The request itself is wrong."""

    exit_code = 2


class UnknownComponent(UsageError):
    """No component of that kind has that name."""


class InvalidConfig(UsageError):
    """A field is unknown, out of bounds, or does not fit its neighbours."""


class DataError(FedwcaError):
    """Images or labels are missing, damaged or inconsistent."""


class DatasetMissing(DataError):
    """The files of a data set are not where they were looked for."""


class CheckpointError(FedwcaError):
    """A model file does not fit the network."""


class Diverged(FedwcaError):
    """Training produced values that are not finite."""


class RankFailed(FedwcaError):
    """Another process of the same ``torchrun`` cannot go on; the exit code is that process's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class Unwritable(FedwcaError):
    """A file or folder cannot be written; the message names it and the system's reason."""


def describe_os_error(error: OSError, unnamed: str) -> str:
    """The operating system's error as a sentence: its file and the reason.

    Args:
        error: the error.
        unnamed: what failed if the error names no file.

    >>> describe_os_error(OSError(2, "No such file or directory", "a.npz"), "the output cannot be written")
    'a.npz: No such file or directory'
    >>> describe_os_error(OSError(28, "No space left on device"), "the output cannot be written")
    'the output cannot be written (No space left on device)'
    """
    reason = error.strerror or first_line(error)
    return f"{error.filename}: {reason}" if error.filename else f"{unnamed} ({reason})"


def first_line(error: BaseException) -> str:
    r"""The first line of another library's error message, for use in our own; its type where there is no message.

    >>> first_line(OSError("no such host\nand a long story")), first_line(KeyError())
    ('no such host', 'KeyError')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]
