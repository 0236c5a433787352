"""The exit codes of every rankscope command."""

from enum import IntEnum


class Exit(IntEnum):
    FINE = 0
    PROBLEM = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    BUG = 70
    INTERRUPTED = 130


class UserError(Exception):
    """Something the user can mend: one line that says what to do, and the exit code."""

    def __init__(self, text: str, exit_code: Exit = Exit.USAGE) -> None:
        super().__init__(text)
        self.exit_code = exit_code
