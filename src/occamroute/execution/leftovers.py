"""Money that blocks did not need, for blocks that have not begun."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from occamroute.errors import InvalidInputError, StorageError

__all__ = ["Leftovers"]

# Less than this share of what a block may spend anyway is not worth planning it again.
WORTH_GIVING = Fraction(1, 50)


class Leftovers:
    """What finished blocks left of what they might spend, shared out among later ones by their numbers of queries.

    ``rows`` are those of each block, and ``budget`` is all blocks'. What a block is given is written to a file before
    it begins, so that a run that goes on gives it the same: at any time all blocks together may spend no more than
    without this.
    """

    def __init__(self, path: Path, budget: Fraction, rows: Sequence[int]) -> None:
        self._path, self._rows = path, rows
        self._usual = budget / sum(rows)
        self._given = _read(path)
        self._left = -sum(self._given.values(), Fraction(0))

    def finished(self, left: Fraction) -> None:
        """A block has ended and left this of all that it might spend, what it was given included."""
        self._left += left

    def for_block(self, number: int) -> Fraction:
        """What a block that is about to begin may spend beyond its cap."""
        if number not in self._given:
            share = self._left * Fraction(self._rows[number], sum(self._rows[number:]))
            if share <= 0 or share < WORTH_GIVING * self._usual * self._rows[number]:
                return Fraction(0)
            self._write(number, share)
            self._given[number] = share
            self._left -= share
        return self._given[number]

    def _write(self, number: int, amount: Fraction) -> None:
        line = json.dumps({"block": number, "amount": str(amount)}) + "\n"
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InvalidInputError(f"cannot write {self._path}: {error.strerror or error}.") from error


def _read(path: Path) -> dict[int, Fraction]:
    if not path.exists():
        return {}
    whole, end, torn = path.read_bytes().rpartition(b"\n")
    if torn:  # the process was stopped while it wrote: that block has not begun
        os.truncate(path, len(whole + end))
    try:
        said = [json.loads(line) for line in whole.splitlines()]
        return {int(one["block"]): Fraction(one["amount"]) for one in said}
    except (ArithmeticError, KeyError, TypeError, ValueError):
        raise StorageError(path, "it is damaged") from None
