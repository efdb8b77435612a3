"""Every exception of the package.

All of them carry their facts in ``args`` and make the sentence in ``__str__``, so that they survive the way
to a worker process and back::

    OccamError
    ├── InvalidInputError (ValueError)      an argument, array or file is not what it must be
    │   ├── UnknownNameError (LookupError)  a name that nothing here answers to
    │   └── StorageError                    a file that is not ours, is cut off, or is of another format
    ├── MissingExtraError (ImportError)     a library that an optional part needs is not installed
    ├── ExecutorError (RuntimeError)        other processes or machines cannot be used, or did not do their work
    ├── BudgetTooSmallError (ValueError)    the budget cannot pay for one classifier per query
    ├── BudgetExceededError (RuntimeError)  a reservation does not fit under a ledger's cap
    ├── LedgerError (RuntimeError)          a ledger cannot be reached or written: nothing may be spent
    ├── RepeatedKeyError (RuntimeError)     a request of this key is under way or was paid
    ├── NoAnswersError (RuntimeError)       a run ended without a single answer
    ├── JournalError (ValueError)           a journal is of another run, or another process is writing it
    ├── CallError (RuntimeError)            a classifier gave no answer
    │   ├── CallRefusedError                and nothing was charged: asking again later may help
    │   ├── CallLostError                   and what was charged is unknown: its worst case counts as spent
    │   └── UnavailableError                nor will it: wrong key, no such model, nobody there
    │       └── OverloadedError             more calls wait for it than it can answer in time
    ├── CertificateError (ValueError)       a plan does not survive the check of its certificate
    └── SolverError (RuntimeError)          an outside solver stopped without an answer
"""

from __future__ import annotations

from fractions import Fraction

__all__ = [
    "BudgetExceededError",
    "BudgetTooSmallError",
    "CallError",
    "CallLostError",
    "CallRefusedError",
    "CertificateError",
    "ExecutorError",
    "InvalidInputError",
    "JournalError",
    "LedgerError",
    "MissingExtraError",
    "NoAnswersError",
    "OccamError",
    "OverloadedError",
    "RepeatedKeyError",
    "SolverError",
    "StorageError",
    "UnavailableError",
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
        others = ", ".join(map(str, known))
        return f"unknown {kind} {name!r}: use one of {others}." if others else f"unknown {kind} {name!r}."


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


class MissingExtraError(OccamError, ImportError):
    """A library that an optional part needs is not installed: ``args`` holds what needs it, and the extra."""

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs libraries that are not installed: pip install 'occamroute[{extra}]'."


class ExecutorError(OccamError, RuntimeError):
    """Other processes or machines cannot be used or did not do their work: ``args`` holds the executor and why."""

    def __str__(self) -> str:
        executor, problem = self.args
        return f"the executor {executor!r} cannot go on: {problem}."


class BudgetExceededError(OccamError, RuntimeError):
    """A reservation does not fit under a ledger's cap: ``args`` holds the amount and what is available."""

    def __str__(self) -> str:
        amount, available = self.args
        return f"a reservation of {amount} does not fit: {available} is available."


class LedgerError(OccamError, RuntimeError):
    """A ledger cannot be reached, read or written, so nothing may be spent: ``args`` holds where it is and why."""

    def __str__(self) -> str:
        place, problem = self.args
        return f"the ledger {place} cannot be used, so nothing may be spent: {problem}."


class RepeatedKeyError(OccamError, RuntimeError):
    """A request under this key is under way elsewhere, or was paid before and its answer is not kept here.

    ``args`` holds the key and the state of its hold in the ledger; nothing was spent now.
    """

    def __str__(self) -> str:
        key, state = self.args
        known = {"held": "is under way elsewhere", "released": "was tried too often, in vain"}
        what = known.get(state, "was paid before, or may have been, and its answer is not kept here")
        return f"a request under the key {key!r} {what}: nothing was spent now. Use another key to pay again."


class NoAnswersError(OccamError, RuntimeError):
    """A run ended without a single answer.

    ``args`` holds the number of queries, what was spent (a text, exactly), and why by query number.
    """

    def __str__(self) -> str:
        queries, _, failures = self.args
        reason = str(next(iter(failures.values()), "no reason is known")).rstrip(".")
        return f"none of the {queries} queries was answered, and {float(self.spent):.6g} was spent: {reason}."

    @property
    def spent(self) -> Fraction:
        """What was charged, or may have been."""
        return Fraction(self.args[1])

    @property
    def failures(self) -> dict[int, str]:
        """Why there is no answer, by query number."""
        return dict(self.args[2])


class JournalError(OccamError, ValueError):
    """A journal that must not be gone on with: ``args`` holds its path and why."""

    def __str__(self) -> str:
        path, problem = self.args
        return f"cannot go on with the journal {path}: {problem}."


class CallError(OccamError, RuntimeError):
    """A classifier gave no answer; ``args`` holds why and, if known, in how many seconds to ask again."""

    def __str__(self) -> str:
        return str(self.args[0]).rstrip(".") + "."

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the other side wants to be asked again, if it said so."""
        return float(self.args[1]) if len(self.args) > 1 and self.args[1] is not None else None


class CallRefusedError(CallError):
    """The call was turned away and nothing was charged; asking again later may help."""


class CallLostError(CallError):
    """No usable answer came, and what was charged is unknown: the worst case counts as spent."""


class UnavailableError(CallError):
    """No call of this classifier can succeed: wrong key, no such model, nobody there."""


class OverloadedError(UnavailableError):
    """More calls wait for a classifier than it can answer in time; none was made, and nothing was charged."""
