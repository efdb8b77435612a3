"""Three "chat models" behind the OpenAI wire format, on this machine: text classifiers that learn when it starts.

They are real: of growing size, price and accuracy, each with errors of its own, and with the log-probabilities and the
token counts that such services report. It stands in for a service that is paid by the token.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prepare import parts
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline, make_union


def learned() -> dict[str, Any]:
    """The models by name: more to learn from, and finer features, from one to the next."""
    rows, _, _ = parts()
    words = CountVectorizer(max_features=300, stop_words="english")
    weighed = TfidfVectorizer(sublinear_tf=True, max_features=3000)
    pieces = make_union(
        TfidfVectorizer(sublinear_tf=True),
        TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 4), max_features=15_000),
    )
    models = {
        "mini": (make_pipeline(words, MultinomialNB()), 0.3),
        "medium": (make_pipeline(weighed, LogisticRegression(C=5)), 0.5),
        "large": (make_pipeline(pieces, LogisticRegression(C=20)), 1.0),
    }
    for model, share in models.values():
        some = rows[: int(len(rows) * share)]
        model.fit([text for text, _ in some], [topic for _, topic in some])
    return {name: model for name, (model, _) in models.items()}


def tokens(text: str) -> int:
    """About as many tokens as a language model makes of a text."""
    return sum(math.ceil(len(word) / 6) for word in re.findall(r"\w+|[^\w\s]", text))


def completion(name: str, model: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a chat: the likeliest topic of the last message."""
    shares = dict(zip(model.classes_, model.predict_proba([request["messages"][-1]["content"]])[0], strict=True))
    ranked = sorted(shares, key=shares.__getitem__, reverse=True)
    listed = [{"token": str(label), "logprob": math.log(max(shares[label], 1e-30))} for label in ranked]
    first = {**listed[0], "top_logprobs": listed[: request.get("top_logprobs", 0)]}
    # The template of a chat: a few tokens a message.
    read = 3 + sum(4 + tokens(message["content"]) for message in request["messages"])
    written = tokens(ranked[0])
    return {
        "object": "chat.completion",
        "model": name,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": str(ranked[0])},
                "finish_reason": "stop",
                "logprobs": {"content": [first]} if request.get("logprobs") else None,
            }
        ],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one piece
    models: dict[str, Any]

    def do_POST(self) -> None:
        """Answer one chat."""
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.headers.get("Authorization", "").startswith("Bearer "):
            return self._send(401, {"error": {"message": "a key is missing"}})
        try:
            request = json.loads(content)
            model = self.models.get(request["model"])
            if self.path != "/v1/chat/completions" or model is None:
                return self._send(404, {"error": {"message": f"no model {request['model']!r} at {self.path}"}})
            return self._send(200, completion(request["model"], model, request))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return self._send(400, {"error": {"message": f"cannot read the request: {error!r}"}})

    def _send(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Learn, say so, and serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8477)
    options = parser.parse_args()
    Handler.models = learned()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    print(f"{', '.join(Handler.models)} at http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
