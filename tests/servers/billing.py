"""An OpenAI-compatible server, as a process of its own, that bills every request which reached a model.

It bills before it spoils a reply, exactly (in fractions), and so knows what a client really spent, whatever the client
believes, and even when the client is dead. ``GET /bill`` tells.

Answers are deterministic: the truth stands in the text as ``#label``; each text has a difficulty (a hash of it), and a
model is right up to the difficulty that is its accuracy. Probabilities tell how close it was.

    python billing.py --models mini:0.15:0.6:0.7,large:15:60:0.95 --labels cat,dog,eel --faults 429=0.2,reset=0.1

Requests of the same ``Idempotency-Key`` are billed once and get the same reply, even while the first is under way.
Books are kept by what was asked: ``billed_by`` says how often each model was paid for each text.

``POST /control`` with ``{"faults": {...}, "forget": true}`` changes the faults and forgets the bill.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from fractions import Fraction
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BILLED = ("500", "reset", "hang", "garbage", "shape", "error200", "cut", "drip", "headerdrip", "huge", "packed")
CHARGED_ANSWERS = ("nousage", "badusage", "zerousage", "overuse", "wrong", "silent")
UNBILLED = ("429", "400", "401", "404", "408", "quota", "redirect", "echo", "nologprobs")
KINDS = (*BILLED, *CHARGED_ANSWERS, *UNBILLED)


class State:
    """Everything that the server knows; one lock for all of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.keys = threading.Lock()
        self.labels: list[str] = options.labels.split(",")
        self.models = {name: rest for name, *rest in (entry.split(":") for entry in options.models.split(","))}
        self.faults = parsed(options.faults)
        self.forget()

    def forget(self) -> None:
        self.random = random.Random(self.options.seed)  # noqa: S311  # faults, no secrets
        self.requests = self.billed = 0
        self.spent = Fraction(0)
        self.by_model: dict[str, dict[str, Any]] = {
            name: {"requests": 0, "spent": Fraction(0), "served": 0} for name in self.models
        }
        self.served: Counter[str] = Counter()
        self.served_by: Counter[str] = Counter()
        self.billed_by: Counter[str] = Counter()
        self.replies: dict[str, bytes] = {}
        self.repeated = 0
        self.by_fault: Counter[str] = Counter()
        self.open = self.most_open = 0

    def fault(self) -> str | None:
        """The fault that the next request meets."""
        with self.lock:
            self.requests += 1
            drawn = self.random.random()
            for kind, share in self.faults.items():
                drawn -= share
                if drawn < 0:
                    self.by_fault[kind] += 1
                    return kind
        return None

    def coin(self) -> bool:
        with self.lock:
            return self.random.random() < 0.5

    def bill(self, model: str, text: str, read: int, written: int) -> None:
        per_input, per_output, _ = self.models[model]
        amount = (read * Fraction(per_input) + written * Fraction(per_output)) / 10**6
        with self.lock:
            self.billed += 1
            self.spent += amount
            self.billed_by[f"{model} {text}"] += 1
            self.by_model[model]["requests"] += 1
            self.by_model[model]["spent"] += amount

    def serve(self, model: str, text: str) -> None:
        with self.lock:
            self.served[text] += 1
            self.served_by[f"{model} {text}"] += 1
            self.by_model[model]["served"] += 1

    def account(self) -> dict[str, Any]:
        with self.lock:
            models = {name: {**entry, "spent": str(entry["spent"])} for name, entry in self.by_model.items()}
            return {
                "spent": str(self.spent),
                "requests": self.requests,
                "billed": self.billed,
                "by_model": models,
                "served": dict(self.served),
                "served_by": dict(self.served_by),
                "billed_by": dict(self.billed_by),
                "repeated": self.repeated,
                "by_fault": dict(self.by_fault),
                "most_at_once": self.most_open,
            }


def parsed(faults: str) -> dict[str, float]:
    """Shares by kind of fault, from "429=0.2,reset=0.1"."""
    found = {kind: float(share) for kind, _, share in (entry.partition("=") for entry in faults.split(",") if entry)}
    unknown = set(found) - set(KINDS)
    if unknown:
        raise SystemExit(f"unknown faults {sorted(unknown)}: use some of {', '.join(KINDS)}")
    return found


def share_of(*texts: str) -> float:
    """A number in [0, 1) that the texts decide."""
    return int.from_bytes(sha256("\0".join(texts).encode()).digest()[:6], "big") / 2**48


def answered(labels: list[str], accuracy: float, model: str, text: str) -> list[float]:
    """The model's probabilities of the labels: the truth first where the text is easy enough for it."""
    truth = re.search(r"#(\w+)", text)
    right = truth.group(1) if truth and truth.group(1) in labels else labels[int(share_of(text) * len(labels))]
    margin = accuracy - share_of("difficulty", text)
    best = right
    if margin < 0:
        others = [label for label in labels if label != right]
        best = others[int(share_of(model, text) * len(others))]
    confidence = 0.55 + 0.44 * min(1.0, abs(margin))
    return [confidence if label == best else (1 - confidence) / (len(labels) - 1) for label in labels]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: State

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        # In one piece: two small ones would wait for each other.
        self.wfile.write(head.encode() + b"\r\n" + body)

    def say(self, status: int, message: str, headers: dict[str, str] | None = None, **more: str) -> None:
        self.send(status, json.dumps({"error": {"message": message, **more}}).encode(), headers)

    def do_GET(self) -> None:
        if self.path == "/bill":
            return self.send(200, json.dumps(self.state.account()).encode())
        if self.path == "/v1/models":
            listed = [{"id": name, "object": "model"} for name in self.state.models]
            return self.send(200, json.dumps({"object": "list", "data": listed}).encode())
        return self.say(404, f"no {self.path}")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/control":
            return self.control(json.loads(content))
        if self.path != "/v1/chat/completions":
            return self.say(404, f"no {self.path}")
        state = self.state
        with state.lock:
            state.open += 1
            state.most_open = max(state.most_open, state.open)
        try:
            self.complete(json.loads(content))
        except (BrokenPipeError, ConnectionResetError):  # the client is gone; its bill is not
            self.close_connection = True
        finally:
            with state.lock:
                state.open -= 1
        return None

    def control(self, wanted: dict[str, Any]) -> None:
        with self.state.lock:
            if "faults" in wanted:
                self.state.faults = wanted["faults"]
            if wanted.get("forget"):
                self.state.forget()
        self.send(200, b"{}")

    def complete(self, request: dict[str, Any]) -> None:
        key = self.state.options.key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            return self.say(401, f"Incorrect API key provided: {self.headers.get('Authorization')}")
        if request["model"] not in self.state.models:
            return self.say(404, f"The model {request['model']!r} does not exist")
        fault = self.state.fault()
        if fault in UNBILLED or (fault == "500" and self.state.coin()):
            return self.refuse(fault, request)
        # A second request of a key that comes at the same moment waits, and finds the reply of the first.
        with self.state.keys:
            known = self.state.replies.get(self.headers.get("Idempotency-Key") or "")
            if known is None:
                body, text = self.completion(request, fault)
                self.remember(body)
        if known is not None:
            self.state.repeated += 1
            return self.send(200, known)
        time.sleep(self.state.options.delay)
        if fault in BILLED:
            return self.spoil(fault, body)
        self.send(200, body)
        if fault not in ("wrong", "silent"):
            self.state.serve(request["model"], text)
        return None

    def remember(self, body: bytes) -> None:
        """Keep a reply that was billed under a key, before anything can go wrong with it."""
        key = self.headers.get("Idempotency-Key")
        if key:
            self.state.replies[key] = body

    def completion(self, request: dict[str, Any], fault: str | None) -> tuple[bytes, str]:
        """The reply, billed."""
        state, model = self.state, request["model"]
        text = request["messages"][-1]["content"]
        per_token = state.options.bytes_per_token
        sent = sum(len(message["content"].encode()) for message in request["messages"])
        form = request.get("response_format")
        sent += len(json.dumps(form)) if form else 0
        read = math.ceil(sent / per_token) + 3 + 4 * len(request["messages"])
        table = answered(state.labels, float(state.models[model][2]), model, text)
        label = state.labels[max(range(len(table)), key=table.__getitem__)]
        if fault == "wrong":
            label = f"I am\x07 sure that {label} is the one: {self.headers.get('Authorization')} " + "so " * 50
        most = request.get("max_tokens") or request["max_completion_tokens"]
        said = json.dumps({"label": label}) if form else label
        # One token for what comes before the label, one for the label, the rest for what comes after.
        before, after = ('{"label": "', '"}') if form else ("", "")
        written = min(most, max(1, math.ceil(len(said.encode()) / per_token)))
        pieces = [(before, None), (label, table), (after, None)] if form else [(label, table)]
        usage: dict[str, Any] | None = {"prompt_tokens": read, "completion_tokens": written}
        if fault == "overuse":
            read, written = 10**6, 10**6
            usage = {"prompt_tokens": read, "completion_tokens": written}
        state.bill(model, text, read, written)
        usage = {
            "nousage": None,
            "badusage": {"prompt_tokens": -1, "completion_tokens": True},
            "zerousage": {"prompt_tokens": 0, "completion_tokens": 0},
        }.get(fault or "", usage)
        logprobs = {"content": [logprob(piece, table, state.labels) for piece, table in pieces if piece]}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": None if fault == "silent" else said},
            "finish_reason": "stop",
            "logprobs": logprobs if request.get("logprobs") else None,
        }
        reply: dict[str, Any] = {"id": "x", "object": "chat.completion", "model": model, "choices": [choice]}
        if usage is not None:
            reply["usage"] = {**usage, "total_tokens": sum(usage.values())}
        return json.dumps(reply).encode(), text

    def refuse(self, fault: str | None, request: dict[str, Any]) -> None:
        """A reply that is not billed."""
        bearer = self.headers.get("Authorization")
        if fault == "429":
            after = {"Retry-After": self.state.options.retry_after} if self.state.coin() else None
            return self.say(429, "slow down", after)
        if fault == "quota":
            return self.say(429, "You exceeded your current quota", code="insufficient_quota")
        if fault == "redirect":
            return self.say(307, "elsewhere", {"Location": "http://127.0.0.1:9/v1"})
        if fault == "echo":
            return self.say(400, f"bad request, headers were {bearer!r} and more", {"X-Echo": "1"})
        if fault == "nologprobs":
            named = [name for name in ("response_format", "logprobs", "temperature") if name in request]
            if named:
                return self.say(400, f"unknown field {named[0]}")
            return self.send(200, self.completion(request, None)[0])
        return self.say(int(fault or 500), f"fault {fault}")

    def spoil(self, fault: str | None, body: bytes) -> None:
        """A reply that is billed, and no use."""
        state = self.state
        self.close_connection = True
        if fault == "500":
            self.say(500, "fault 500")
        elif fault == "garbage":
            self.send(200, b"<html>\xff oops")
        elif fault == "shape":
            self.send(200, b'{"choices": []}')
        elif fault == "error200":
            self.say(200, "the provider behind this one failed")
        elif fault == "packed":
            self.send(200, body, {"Content-Encoding": "gzip"})
        elif fault == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
        elif fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif fault == "hang":
            time.sleep(state.options.hang)
        elif fault == "huge":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(10_000):
                self.wfile.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            rest = head + body
            if fault == "drip":
                self.wfile.write(head)
                rest = body
            for number in range(len(rest)):
                self.wfile.write(rest[number : number + 1])
                time.sleep(state.options.drip)


def logprob(piece: str, table: list[float] | None, labels: list[str]) -> dict[str, Any]:
    """A token as the API lists it, the most likely alternatives first."""
    listed = sorted(zip(table, labels, strict=True), reverse=True) if table else [(1.0, piece)]
    return {
        "token": piece,
        "logprob": math.log(max(table) if table else 1.0),
        "top_logprobs": [{"token": label, "logprob": math.log(share)} for share, label in listed[:5]],
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # resets are what this server is for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--models", default="mini:0.15:0.6:0.7,medium:1.5:6:0.85,large:7.5:30:0.97")
    parser.add_argument("--labels", default="cat,dog,eel")
    parser.add_argument("--faults", default="", help="shares by kind, like 429=0.2,reset=0.1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--key", default="", help="the key that requests must carry; none is checked without")
    parser.add_argument("--bytes-per-token", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that every answer takes")
    parser.add_argument("--hang", type=float, default=30.0, help="seconds that the fault hang takes")
    parser.add_argument("--drip", type=float, default=1.0, help="seconds between the bytes of the fault drip")
    parser.add_argument("--retry-after", default="0.05")
    options = parser.parse_args()
    Handler.state = State(options)
    server = Server(("127.0.0.1", options.port), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201  # how whoever started it learns the port
    server.serve_forever()


if __name__ == "__main__":
    main()
