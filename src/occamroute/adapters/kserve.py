"""Models behind the Open Inference Protocol (version 2, JSON) as classifiers: KServe, Triton, MLServer and others."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any, Literal, NoReturn
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from occamroute._arrays import FloatArray
from occamroute._money import exact
from occamroute.adapters._http import Endpoint, Reply
from occamroute.adapters._remote import RemoteClassifier
from occamroute.adapters._tables import softmax
from occamroute.adapters._tensors import DATATYPES, Tensors, array_of, described, input_of
from occamroute.errors import CallLostError, CallRefusedError, InvalidInputError, UnavailableError
from occamroute.pool import Answers, Cost, Measured, PerToken

__all__ = ["KServeClassifier"]


class KServeClassifier(RemoteClassifier):
    """A model that is asked by the Open Inference Protocol.

    ``base_url`` is the part before ``/v2``. Queries are arrays (n, …) of numbers or n texts. ``input``, ``output`` and
    ``datatype`` ("FP32", "INT64", "BYTES" for texts, …) come from the model's metadata where they are not given.
    ``activation`` says what the output holds: probabilities (n, classes), or logits. An output with one value a query
    names the label.

    The cost is a number or measured. A query that the server turns away is found by asking again for smaller parts of
    the call, as nothing is charged for what is turned away. The rest is as with every classifier behind HTTP.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        classes: tuple[str, ...],
        base_url: str,
        model: str,
        version: str | None = None,
        input: str | None = None,  # noqa: A002  # the protocol's word
        output: str | None = None,
        datatype: str | None = None,
        activation: Literal["probabilities", "logits"] = "probabilities",
        key_env: str | None = None,
        batch_size: int = 32,
        timeout: float = 20,
        retries: int = 4,
        concurrency: int = 4,
        per_minute: int | None = None,
    ) -> None:
        super().__init__(
            Endpoint(name, base_url, key_env, limit=64_000_000),
            cost,
            classes=classes,
            batch_size=batch_size,
            timeout=timeout,
            retries=retries,
            concurrency=concurrency,
            per_minute=per_minute,
        )
        if isinstance(cost, PerToken):
            raise InvalidInputError(
                f"cost of classifier {name!r} must be a number or measured: its model counts no tokens."
            )
        if datatype is not None and datatype not in (*DATATYPES, "BYTES"):
            raise InvalidInputError(
                f"datatype of classifier {name!r} must be one of {', '.join(DATATYPES)}, BYTES, got {datatype!r}."
            )
        if activation not in ("probabilities", "logits"):
            raise InvalidInputError(
                f"activation of classifier {name!r} must be 'probabilities' or 'logits', got {activation!r}."
            )
        self.model, self.activation = model, activation
        self._path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        self._given = Tensors(input, datatype, output)
        self._tensors: Tensors | None = None
        if input and output and datatype and datatype != "BYTES":
            self._tensors = self._given
        self._unusable: str | None = None

    async def _attempt(self, queries: Any, seconds: float, key: str) -> Answers:
        end = time.monotonic() + seconds
        if self._unusable is not None:
            raise UnavailableError(self._unusable)
        if self._tensors is None:
            self._tensors = await self._described(seconds)
        return await self._answered(array_of(queries, self.name), self._tensors, end)

    async def _described(self, seconds: float) -> Tensors:
        """The model's tensors by its own account; asking for that is not charged."""
        try:
            reply = await self.endpoint.request(self._path, seconds=seconds)
            problem = self.endpoint.refusal(reply)
        except CallLostError as error:
            raise CallRefusedError(*error.args) from None
        found = reply.json()
        if problem is not None or not isinstance(found, dict):
            raise UnavailableError(problem or f"{self.name!r} gave no metadata of its model")
        return described(found, self._given, self.name, len(self.classes))

    async def _answered(self, queries: npt.NDArray[Any], tensors: Tensors, end: float) -> Answers:
        payload: dict[str, Any] = {"inputs": [input_of(queries, tensors, self.name)]}
        if tensors.output is not None:
            payload["outputs"] = [{"name": tensors.output}]
        reply = await self.endpoint.request(f"{self._path}/infer", payload, seconds=max(end - time.monotonic(), 0.0))
        refusal = self.endpoint.refusal(reply)
        if refusal is None:
            return self._read(reply, len(queries), tensors)
        if len(queries) == 1:
            return Answers(self._unknowing(1), [Fraction(0)], {0: refusal})
        half = len(queries) // 2
        first = await self._answered(queries[:half], tensors, end)
        charged = [*np.asarray(first.cost, object)]
        try:
            second = await self._answered(queries[half:], tensors, end)
        except (CallRefusedError, UnavailableError) as error:
            if not any(charged):
                raise
            raise CallLostError(*error.args) from None  # nothing for this half, but something for the other
        failures = {**first.failures, **{row + half: why for row, why in second.failures.items()}}
        table = np.concatenate([first.probabilities, second.probabilities])
        return Answers(table, [*charged, *np.asarray(second.cost, object)], failures)

    def _read(self, reply: Reply, rows: int, tensors: Tensors) -> Answers:
        body = reply.json()
        outputs = body.get("outputs") if isinstance(body, dict) else None
        try:
            named = {str(entry["name"]): np.array(entry["data"]).reshape(-1) for entry in outputs or ()}
        except (TypeError, KeyError, ValueError):
            named = {}
        if not named:
            self.endpoint.lost(f"{reply.status}, but no output")
        name = next(iter(named)) if tensors.output is None else tensors.output
        if name not in named:
            self._stop(f"its model gives {', '.join(list(named)[:8])!s:.200}, but no {name!r}")
        table = self._table(named[name], rows)
        sound = np.isfinite(table).all(axis=1) & (table >= 0.0).all(axis=1) & table.any(axis=1)
        failures = {int(row): self._doubt(table[row]) for row in np.flatnonzero(~sound)}
        table[list(failures)] = self._unknowing(len(failures))
        each = (
            self.cost.of(min(reply.seconds, self.timeout)) / rows
            if isinstance(self.cost, Measured)
            else exact(self.cost)
        )
        return Answers(table, [each] * rows, failures)

    def _table(self, values: npt.NDArray[Any], rows: int) -> FloatArray:
        """Probabilities (n, classes) from the values of an output."""
        number = len(self.classes)
        if values.size == rows and number > 1:
            return np.array([[float(str(value) == label) for label in self.classes] for value in values.tolist()])
        if values.dtype.kind not in "fiub":
            self.endpoint.lost("its output holds no numbers")
        if values.size != rows * number:
            self._stop(
                f"its output has {values.size} values for {rows} queries, not {number}, one for each class, a query"
            )
        table = values.reshape(rows, -1).astype(np.float64)
        return softmax(table) if self.activation == "logits" and np.isfinite(table).all() else table

    def _stop(self, problem: str) -> NoReturn:
        """Gives up: the same would come again, and cost again. What this call cost, nobody knows."""
        self._unusable = f"{self.name!r} cannot be used: {problem}; give another output, or other classes"
        self.endpoint.lost(problem)

    def _doubt(self, row: FloatArray) -> str:
        """Why a row is no answer."""
        if not row.any():
            return f"{self.name!r} answered with none of the labels"
        odd = float(row[~(np.isfinite(row) & (row >= 0.0))][0])
        hint = " (if these are logits, say so as activation)" if self.activation == "probabilities" and odd < 0 else ""
        return f"{self.name!r} answered with a probability of {odd:g}{hint}"

    def _unknowing(self, rows: int) -> FloatArray:
        return np.full((rows, len(self.classes)), 1.0 / len(self.classes))
