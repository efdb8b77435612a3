"""A server of the Open Inference Protocol (version 2), as a process of its own, with real scikit-learn models.

It is as strict as the protocol: names, types, shapes and the number of values must fit, else 400. ``GET /count`` tells
how many calls reached a model and how many queries they held; ``POST /control`` sets the fault that all calls meet.

Models: ``iris`` (FP32, label and probabilities), ``logits`` (FP64, decision function), ``texts`` (BYTES, two versions),
``column`` (BYTES, rows of one), ``labels`` (a label only), ``pair`` (two inputs), ``bare`` (no metadata of tensors).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

TYPES = {"FP32": "float32", "FP64": "float64", "INT64": "int64", "BYTES": "object"}
# Texts with this word are turned away, as too long ones would be.
TABOO = "taboo"

iris = load_iris()
flowers = LogisticRegression(max_iter=1000).fit(iris.data, iris.target)
names = [str(name) for name in iris.target_names]
words = ["the cat purrs", "a cat sleeps", "the dog barks", "a dog runs", "the eel swims", "an eel glides"]
reader = make_pipeline(CountVectorizer(), MultinomialNB()).fit(words, ["cat", "cat", "dog", "dog", "eel", "eel"])

Outputs = dict[str, Any]
LABEL = {"name": "label", "datatype": "BYTES", "shape": [-1]}
SHARES = {"name": "probabilities", "datatype": "FP64", "shape": [-1, 3]}


def flower_outputs(table: Any) -> Outputs:
    return {
        "label": [names[number] for number in flowers.predict(table)],
        "probabilities": flowers.predict_proba(table),
    }


def text_outputs(texts: Any) -> Outputs:
    found = [str(text) for text in texts.reshape(-1)]
    if any(TABOO in text for text in found):
        raise ValueError(f"the word {TABOO} is not allowed")
    return {"probabilities": reader.predict_proba(found)}


class Model:
    """A function on tensors with its metadata."""

    def __init__(self, function: Callable[[Any], Outputs], inputs: list[Any], outputs: list[Any]) -> None:
        self.function, self.inputs, self.outputs = function, inputs, outputs


def tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


MODELS = {
    "iris": Model(flower_outputs, [tensor("flowers", "FP32", -1, 4)], [LABEL, SHARES]),
    "logits": Model(
        lambda table: {"scores": flowers.decision_function(table)},
        [tensor("flowers", "FP64", -1, 4)],
        [tensor("scores", "FP64", -1, 3)],
    ),
    "texts": Model(text_outputs, [tensor("text", "BYTES", -1)], [SHARES]),
    "column": Model(text_outputs, [tensor("text", "BYTES", -1, 1)], [SHARES]),
    "labels": Model(
        lambda table: {"label": flower_outputs(table)["label"]}, [tensor("flowers", "FP32", -1, 4)], [LABEL]
    ),
    "pair": Model(flower_outputs, [tensor("a", "FP32", -1, 4), tensor("b", "FP32", -1, 4)], [SHARES]),
    "bare": Model(flower_outputs, [], []),
}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    calls = queries = 0
    fault = ""

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, value: Any) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def model(self) -> tuple[str, Model | None, str]:
        """The model's name, the model, and what of the path is left."""
        parts = self.path.strip("/").split("/")
        if parts[:2] != ["v2", "models"] or len(parts) < 3:
            return "", None, ""
        name, rest = parts[2], parts[3:]
        if rest[:1] == ["versions"]:
            if name != "texts" or rest[1:2] not in (["1"], ["2"]):
                return name, None, ""
            rest = rest[2:]
        return name, MODELS.get(name), "/".join(rest)

    def do_GET(self) -> None:
        if self.path == "/count":
            return self.send(200, {"calls": self.calls, "queries": self.queries})
        name, model, rest = self.model()
        if model is None or rest:
            return self.send(404, {"error": f"no model {name}"})
        if self.fault == "metadata":
            return self.send(500, {"error": "not ready"})
        described = {"name": name, "versions": ["1"], "platform": "sklearn"}
        if name == "bare":
            return self.send(200, described)
        return self.send(200, {**described, "inputs": model.inputs, "outputs": model.outputs})

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path == "/control":
            with Handler.lock:
                Handler.fault, Handler.calls, Handler.queries = content["fault"], 0, 0
            return self.send(200, {})
        name, model, rest = self.model()
        if model is None or rest != "infer":
            return self.send(404, {"error": f"no model {name}"})
        try:
            return self.infer(name, model, content)
        except (ValueError, KeyError, TypeError) as error:
            return self.send(400, {"error": str(error)})

    def infer(self, name: str, model: Model, request: dict[str, Any]) -> None:
        if self.fault == "429":
            return self.send(429, {"error": "slow down"})
        table = self.checked(model, request["inputs"])
        found = model.function(table)
        with Handler.lock:
            Handler.calls += 1
            Handler.queries += len(table)
            number = Handler.calls
        if self.fault == "second429" and number > 1:
            return self.send(429, {"error": "slow down"})
        if self.fault == "500":
            return self.send(500, {"error": "no luck"})
        if self.fault == "garbage":
            return self.send(200, b"{]")
        if self.fault == "hang":
            time.sleep(30)
        wanted = [output["name"] for output in request.get("outputs", [])] or list(found)
        unknown = set(wanted) - set(found)
        if unknown:
            raise ValueError(f"no outputs {sorted(unknown)}")
        outputs = [self.output(one, found[one]) for one in wanted]
        return self.send(200, {"model_name": name, "outputs": outputs})

    def checked(self, model: Model, inputs: list[dict[str, Any]]) -> Any:
        """The first input as an array, if all are as the model wants them."""
        if model.inputs and sorted(one["name"] for one in inputs) != sorted(one["name"] for one in model.inputs):
            raise ValueError(f"the inputs must be {[one['name'] for one in model.inputs]}")
        given = inputs[0]
        if not isinstance(given["data"], list) or len(given["data"]) != math.prod(given["shape"]):
            raise ValueError(f"shape {given['shape']} needs {math.prod(given['shape'])} values")
        for known in model.inputs[:1]:
            fits = len(known["shape"]) == len(given["shape"]) and all(
                wanted in (-1, got) for wanted, got in zip(known["shape"], given["shape"], strict=True)
            )
            if given["datatype"] != known["datatype"] or not fits:
                raise ValueError(f"{known['name']} must be {known['datatype']} of shape {known['shape']}")
        return np.array(given["data"], TYPES[given["datatype"]]).reshape(given["shape"])

    def output(self, name: str, values: Any) -> dict[str, Any]:
        array = np.asarray(values)
        if self.fault == "nan" and array.dtype.kind == "f":
            array[0, 0] = np.nan
        datatype = "FP64" if array.dtype.kind == "f" else "BYTES"
        return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.reshape(-1).tolist()}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201  # how whoever started it learns the port
    server.serve_forever()


if __name__ == "__main__":
    main()
