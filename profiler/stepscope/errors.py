"""The two ways a command ends early; both are printed once, in `stepscope.cli.main`, and nowhere else."""


class StepscopeError(Exception):
    """Base of the errors that a user can act on. The message says what is wrong, where, and what to do next."""

    exit_code = 2


class InputError(StepscopeError):
    """Bad input: a file, an option or an environment that cannot give an answer (exit code 2)."""


class GateFailed(StepscopeError):
    """The audit was made and a gate the user asked for did not hold (exit code 1)."""

    exit_code = 1
