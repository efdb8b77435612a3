"""Metrics: plain counters, written as text for Prometheus only when somebody asks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

__all__ = ["Family", "Metrics", "Sample", "exposition"]

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Sample = tuple[Mapping[str, str], float]
# A name, a type, what it is, and samples.
Family = tuple[str, str, str, list[Sample]]


class Metrics:
    """Counts of requests and how long they took, by endpoint; only the event loop's thread may add to them."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self.decisions: dict[tuple[str, str], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests[method, path, status] += 1
        self._buckets[path][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[path] += seconds

    def families(self) -> Iterable[Family]:
        """Each family of numbers: its name, its type, what it is, and its samples."""
        yield (
            "occamroute_requests_total", "counter", "Requests by endpoint and status.",
            [
                ({"method": method, "path": path, "status": str(status)}, count)
                for (method, path, status), count in sorted(self.requests.items())
            ],
        )  # fmt: skip
        yield (
            "occamroute_decisions_total", "counter", "Decisions by classifier and reason.",
            [
                ({"classifier": classifier, "reason": reason}, count)
                for (classifier, reason), count in sorted(self.decisions.items())
            ],
        )  # fmt: skip
        yield (
            "occamroute_request_seconds", "histogram", "How long requests took.",
            [sample for path in sorted(self._buckets) for sample in self._histogram(path)],
        )  # fmt: skip

    def _histogram(self, path: str) -> Iterable[Sample]:
        total = 0
        for limit, count in zip((*map(str, BUCKETS), "+Inf"), self._buckets[path], strict=True):
            total += count
            yield {"": "_bucket", "path": path, "le": limit}, total
        yield {"": "_sum", "path": path}, self._seconds[path]
        yield {"": "_count", "path": path}, total


def exposition(families: Iterable[Family]) -> str:
    """The text that Prometheus reads; the label "" is what a sample's name ends in."""
    lines = []
    for name, kind, words, samples in families:
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        lines += [_line(name, labels, value) for labels, value in samples]
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    ending = labels.get("", "")
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items() if label)
    return f"{name}{ending}{{{shown}}} {float(value)!r}" if shown else f"{name}{ending} {float(value)!r}"


def _escaped(text: str) -> str:
    return re.sub(r'[\\"\n]', lambda found: {"\\": r"\\", '"': r"\"", "\n": r"\n"}[found[0]], text)
