"""Every exception of the package.

All of them carry their facts in ``args`` and make the sentence in ``__str__``, so that they survive the way
to a worker process and back::

    OccamError
    ├── InvalidInputError (ValueError)      an argument, array or file is not what it must be
    │   ├── UnknownNameError (LookupError)  a name that nothing here answers to
    │   └── StorageError                    a file that is not ours, is cut off, or is of another format
    ├── BudgetTooSmallError (ValueError)    the budget cannot pay for one classifier per query
    ├── CertificateError (ValueError)       a plan does not survive the check of its certificate
    └── SolverError (RuntimeError)          an outside solver stopped without an answer
"""

from __future__ import annotations

__all__ = [
    "BudgetTooSmallError",
    "CertificateError",
    "InvalidInputError",
    "OccamError",
    "SolverError",
    "StorageError",
    "UnknownNameError",
]


class OccamError(Exception):
    """Anything that occamroute raises on purpose."""


class InvalidInputError(OccamError, ValueError):
    """An argument is not what it must be: ``args`` is the whole sentence."""


class UnknownNameError(InvalidInputError, LookupError):
    """A name that nothing here answers to.

    ``args`` holds what kind of name, the name, and those that would do.
    """

    def __str__(self) -> str:
        kind, name, known = self.args
        return f"unknown {kind} {name!r}: use one of {', '.join(map(str, known))}."


class StorageError(InvalidInputError):
    """A file that is not ours, is cut off, or is of a format that this version does not read.

    ``args`` holds the path and what is wrong with it.
    """

    def __str__(self) -> str:
        path, problem = self.args
        return f"cannot read {path}: {problem}."


class BudgetTooSmallError(OccamError, ValueError):
    """The budget cannot pay for one classifier per query.

    ``args`` holds the budget and the least budget that would do, as exact decimals.
    """

    def __str__(self) -> str:
        budget, needed = self.args
        return (
            f"a budget of {budget} is too small: answering every query takes at least {needed}. "
            "Raise the budget, or add a cheaper classifier."
        )

    @property
    def needed(self) -> float:
        """The least budget that would do."""
        return float(self.args[1])


class CertificateError(OccamError, ValueError):
    """A plan does not survive the check of its certificate.

    ``args`` holds the field, what the plan states, and what follows from its problem.
    """

    def __str__(self) -> str:
        field, stated, found = self.args
        return f"the plan's {field} does not hold: it states {stated}, but its problem gives {found}."


class SolverError(OccamError, RuntimeError):
    """An outside solver stopped without an answer: ``args`` holds its name and its message."""

    def __str__(self) -> str:
        solver, message = self.args
        return f"solver {solver!r} found no plan: {message}."
