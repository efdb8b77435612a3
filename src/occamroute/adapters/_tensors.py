"""Tensors of the Open Inference Protocol: which ones a model wants and gives, and queries in that form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from occamroute.errors import InvalidInputError, UnavailableError

__all__ = ["DATATYPES", "Tensors", "array_of", "described", "input_of"]

DATATYPES: dict[str, str] = {
    "BOOL": "bool",
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
BY_DTYPE = {dtype: datatype for datatype, dtype in DATATYPES.items()}
# The name of an input where a server tells none: such servers do not look at it.
NAMELESS = "input-0"


@dataclass(frozen=True)
class Tensors:
    """The tensors to send and to read: names, the input's type, and whether each text is a row of its own.

    None for the type means that of the queries, None for the output the first.
    """

    input: str | None
    datatype: str | None
    output: str | None
    rows_of_one: bool = False


def described(metadata: Mapping[str, Any], given: Tensors, name: str, classes: int) -> Tensors:
    """The tensors of a model by its metadata; what is given counts more."""
    taken = _one(_listed(metadata, "inputs"), given.input, name, "input")
    outputs = _listed(metadata, "outputs")
    if given.output is None and len(outputs) > 1:
        # Many models give a label beside its probabilities.
        fitting = [entry for entry in outputs if list(entry.get("shape", ()))[-1:] == [classes]]
        outputs = fitting if len(fitting) == 1 else outputs
    read = _one(outputs, given.output, name, "output")
    shape = taken.get("shape", ())
    return Tensors(
        input=str(taken.get("name", NAMELESS)),
        datatype=given.datatype or taken.get("datatype"),
        output=read.get("name"),
        rows_of_one=isinstance(shape, list) and len(shape) == 2,
    )


def _listed(metadata: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = metadata.get(key)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _one(tensors: list[dict[str, Any]], wanted: str | None, name: str, kind: str) -> dict[str, Any]:
    """The tensor that is wanted, or the only one; servers that list none are believed to have it."""
    if not tensors:
        return {} if wanted is None else {"name": wanted}
    fitting = [entry for entry in tensors if wanted in (None, entry.get("name"))]
    if len(fitting) != 1:
        known = ", ".join(str(entry.get("name"))[:60] for entry in tensors[:8])
        raise UnavailableError(f"the model of {name!r} has the {kind}s {known}: name one of them as {kind}")
    return fitting[0]


def array_of(queries: Any, name: str) -> npt.NDArray[Any]:
    """Queries as one array: numbers (n, …), or texts (n,)."""
    if not isinstance(queries, np.ndarray) and all(isinstance(query, str) for query in queries):
        texts = np.empty(len(queries), object)  # an array of text would take the zeros off its ends
        texts[:] = queries
        return texts
    try:
        array = np.asarray(queries)
    except ValueError:
        raise InvalidInputError(f"queries of classifier {name!r} must be of one shape, got several.") from None
    if array.dtype.kind not in "fiubU":
        raise InvalidInputError(f"queries of classifier {name!r} must be numbers or texts, got {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInputError(f"queries of classifier {name!r} must be finite: JSON holds no NaN and no infinity.")
    return array


def input_of(queries: npt.NDArray[Any], tensors: Tensors, name: str) -> dict[str, Any]:
    """The tensor to send, its data flat."""
    texts = queries.dtype.kind in "UO"
    datatype = tensors.datatype or ("BYTES" if texts else BY_DTYPE[queries.dtype.name])
    if texts != (datatype == "BYTES"):
        kind = "texts" if texts else "numbers"
        raise InvalidInputError(f"the model of {name!r} takes {datatype}, got {kind}.")
    if texts:
        # No UTF-8 holds half a surrogate pair.
        data: list[Any] = [text.encode("utf-8", "replace").decode() for text in queries.reshape(-1).tolist()]
        shape = [len(queries), 1] if tensors.rows_of_one and queries.ndim == 1 else list(queries.shape)
    else:
        data, shape = queries.astype(DATATYPES[datatype], copy=False).reshape(-1).tolist(), list(queries.shape)
    return {"name": tensors.input, "shape": shape, "datatype": datatype, "data": data}
