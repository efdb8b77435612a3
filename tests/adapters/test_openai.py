"""Chat classifiers against a real server that bills: what each outcome costs, says and gives away."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import BillingServer, billing_server

import occamroute as oc
from occamroute.adapters._http import retry_after
from occamroute.adapters.openai import ChatClassifier
from occamroute.errors import CallLostError, CallRefusedError, UnavailableError
from occamroute.pool import Answers, Measured, PerToken
from occamroute.testing import check_classifier

CLASSES = ("cat", "dog", "eel")
PRICE = PerToken(0.15, 0.6)
KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def running() -> Iterator[BillingServer]:
    with billing_server("--key", KEY, "--hang", "20", "--drip", "0.2", "--bytes-per-token", "1") as server:
        yield server


@pytest.fixture
def server(running: BillingServer, monkeypatch: pytest.MonkeyPatch) -> BillingServer:
    """A server without faults and with an empty bill; the key to it in the environment."""
    monkeypatch.setenv("LLM_KEY", KEY)
    running.meet()
    return running


def chat(server: BillingServer, **options: Any) -> ChatClassifier:
    known: dict[str, Any] = {"classes": CLASSES, "base_url": f"{server.url}/v1", "model": "mini", "key_env": "LLM_KEY"}
    return ChatClassifier("mini", options.pop("cost", PRICE), **{**known, "timeout": 1.0, **options})


def cost_of(answers: Answers) -> Fraction:
    (cost,) = np.asarray(answers.cost, object)
    assert isinstance(cost, Fraction)
    return cost


def test_an_answer_costs_what_the_server_bills(server: BillingServer) -> None:
    """Exactly, to the last digit; its argmax is the answer, and the truth for an easy text."""
    classifier = chat(server)
    texts = [f"text {number} about a #{CLASSES[number % 3]}" for number in range(30)]
    answers = [classifier.answer([text]) for text in texts]
    bill = server.bill()
    assert sum(map(cost_of, answers)) == bill["spent"] > 0
    assert bill["served"] == dict.fromkeys(texts, 1)
    right = np.mean([answer.probabilities.argmax() == number % 3 for number, answer in enumerate(answers)])
    assert 0.5 < right < 0.9  # a model that is right in 7 of 10 cases
    for answer in answers:
        assert not answer.failures
        assert answer.probabilities.shape == (1, 3)
        assert answer.probabilities.sum() == pytest.approx(1.0)
        assert 0.5 < answer.probabilities.max() < 1.0


def test_it_keeps_the_contract_of_classifiers(server: BillingServer) -> None:
    """The suite that every classifier passes, with each form of cost."""
    texts = [f"text {number} about a #dog" for number in range(3)]
    for cost in (PRICE, 0.25, Measured()):
        check_classifier(chat(server, cost=cost), texts, CLASSES)


@pytest.mark.parametrize("fault", ["_500", "reset", "cut", "garbage", "shape", "error200", "packed", "huge", "_408"])
def test_what_may_have_been_charged_is_lost(server: BillingServer, fault: str) -> None:
    """An answer that does not arrive whole may be on the bill, and the error says so."""
    server.meet(**{fault: 1.0})
    with pytest.raises(CallLostError) as caught:
        chat(server).answer(["a #cat"])
    assert str(caught.value).startswith("'mini' ")
    assert str(caught.value).endswith(".")
    assert fault == "_408" or server.bill()["by_fault"][fault.removeprefix("_")] == 1


@pytest.mark.parametrize("fault", ["hang", "drip", "headerdrip"])
def test_the_limit_is_for_the_whole_call(server: BillingServer, fault: str) -> None:
    """Neither silence nor a byte now and then draws a call out; it is lost, as it is on the bill."""
    server.meet(**{fault: 1.0})
    begun = time.monotonic()
    with pytest.raises(CallLostError, match=r"not all there after 0\.5 s"):
        chat(server, timeout=0.5).answer(["a #cat"])
    with pytest.raises(CallLostError, match=r"not all there after 0\.3 s"):
        chat(server, timeout=20).answer(["a #cat"], timeout=0.3)
    assert 0.8 <= time.monotonic() - begun < 10.0
    assert server.bill()["billed"] == 2


@pytest.mark.parametrize("fault", ["_401", "_404", "quota", "redirect"])
def test_what_can_never_succeed_is_unavailable(server: BillingServer, fault: str) -> None:
    """A wrong key or model, no credit, another address: asking again cannot help."""
    server.meet(**{fault: 1.0})
    with pytest.raises(UnavailableError, match="'mini' answered"):
        chat(server).answer(["a #cat"])
    assert server.bill()["billed"] == 0


def test_a_refusal_carries_when_to_ask_again(server: BillingServer) -> None:
    """429 is not billed; Retry-After is in the error where it was given."""
    server.meet(_429=1.0)
    seen = set()
    for _ in range(12):
        with pytest.raises(CallRefusedError, match="answered 429: slow down") as caught:
            chat(server).answer(["a #cat"])
        seen.add(caught.value.retry_after)
    assert seen == {None, 0.05}
    assert server.bill()["billed"] == 0


def test_retry_after_in_all_its_forms() -> None:
    """Milliseconds before seconds, dates with and without a zone, and nonsense."""
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after": "-3"}) == 0.0
    later = time.strftime("%a, %d %b %Y %H:%M:%S", time.gmtime(time.time() + 60))
    for date in (f"{later} GMT", f"{later} -0000"):
        found = retry_after({"retry-after": date})
        assert found is not None
        assert 55 < found <= 60
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    for nonsense in ("soon", "nan", "inf", "", "Wed, 21 Oct 2015 07:28:00 +99999999999999"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_a_query_that_is_turned_away_fails_alone(server: BillingServer) -> None:
    """400 concerns the query: a failure that costs nothing, and no retry."""
    server.meet(_400=1.0)
    answers = chat(server).answer(["a #cat"])
    assert answers.failures == {0: "'mini' answered 400: fault 400"}
    assert cost_of(answers) == 0 == server.bill()["spent"]
    with pytest.raises(oc.OccamError, match="answered 400"):
        chat(server).predict_proba(["a #cat"])


@pytest.mark.parametrize("fault", ["nousage", "badusage", "zerousage"])
def test_without_a_usage_to_believe_the_worst_case_counts(server: BillingServer, fault: str) -> None:
    """The answer counts, and costs the most that it can have cost."""
    server.meet(**{fault: 1.0})
    classifier = chat(server)
    answers = classifier.answer(["a #cat"])
    assert not answers.failures
    assert cost_of(answers) == classifier.max_cost(["a #cat"])[0] >= server.bill()["spent"]


def test_a_usage_above_the_worst_case_is_charged(server: BillingServer) -> None:
    """What the server claims is what will be on its bill."""
    server.meet(overuse=1.0)
    classifier = chat(server)
    assert cost_of(classifier.answer(["a #cat"])) == server.bill()["spent"] > classifier.max_cost(["a #cat"])[0]


def test_an_answer_that_is_no_label_is_paid_and_no_answer(server: BillingServer) -> None:
    """It is quoted in short, in one line, without the key in it; one without text is said to be so."""
    server.meet(wrong=1.0)
    classifier = chat(server)
    answers = classifier.answer(["a #cat"])
    (reason,) = answers.failures.values()
    quoted = reason.removeprefix("'mini' answered '").partition("', which is none of the labels")[0]
    assert quoted.startswith("I am sure that ")
    assert len(quoted) == 60
    assert cost_of(answers) == server.bill()["spent"] > 0
    server.meet(silent=1.0)
    assert classifier.answer(["a #cat"]).failures == {0: "'mini' answered with no text"}


def test_nobody_there_costs_nothing(server: BillingServer) -> None:
    """A refused connection, an unknown host and a connection that never comes about are all refusals."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(CallRefusedError, match=f"no connection to {url}: Connection refused"):
            chat(server, base_url=url).answer(["a"])
    with pytest.raises(CallRefusedError, match="no connection"):
        chat(server, base_url=f"https://127.0.0.1:{server.port}/v1").answer(["a"])
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(CallRefusedError, match=r"none after 0\.3 s"):
            chat(server, base_url=f"http://127.0.0.1:{address[1]}/v1", timeout=0.3).answer(["a"])
        for one in waiting:
            one.close()


def test_fields_that_a_server_does_not_know_are_left_out(server: BillingServer) -> None:
    """Refusals that name a field cost nothing: the same call asks for less, and so do all later ones."""
    server.meet(nologprobs=1.0)
    classifier = chat(server, structured=True)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: classifier.answer(["a #cat"]), range(8)))
    assert all(not answer.failures and answer.probabilities.max() == 1.0 for answer in answers)
    before = server.bill()
    assert before["billed"] == 8
    classifier.answer(["a #cat"])
    assert server.bill()["requests"] == before["requests"] + 1


def test_structured_answers_are_asked_for_and_read(server: BillingServer) -> None:
    """The schema allows the labels only; probabilities come from the label's own token."""
    plain, structured = chat(server), chat(server, structured=True)
    for number in range(6):
        text = f"text {number} of a #eel"
        one, other = plain.answer([text]), structured.answer([text])
        np.testing.assert_allclose(one.probabilities, other.probabilities)
        assert cost_of(other) > cost_of(one)
    assert chat(server, logprobs=False).answer(["an #eel"]).probabilities.max() == 1.0


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=80), structured=st.booleans())
def test_no_bill_is_above_the_worst_case(server: BillingServer, text: str, structured: bool) -> None:
    """Even for a model whose every byte is a token: emoji, lone surrogates, control characters."""
    server.meet()
    classifier = chat(server, structured=structured, max_tokens=64)
    (most,) = classifier.max_cost([text])
    cost = cost_of(classifier.answer([text]))
    assert cost == server.bill()["spent"] <= most


def test_sixteen_threads_share_one_classifier(server: BillingServer) -> None:
    """Every thread gets the answer to its own text, and the bill is the sum."""
    classifier = chat(server, timeout=20)
    texts = [f"text {number} about a #{CLASSES[number % 3]}" for number in range(320)]
    alone = [classifier.answer([text]).probabilities for text in texts[:20]]
    server.meet()
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda text: classifier.answer([text]), texts))
    bill = server.bill()
    assert sum(map(cost_of, answers)) == bill["spent"]
    assert bill["served"] == dict.fromkeys(texts, 1)
    for answer, before in zip(answers, alone, strict=False):
        np.testing.assert_array_equal(answer.probabilities, before)


def test_through_all_faults_the_bill_is_within_what_is_known(server: BillingServer) -> None:
    """Answers at their cost, lost calls at their worst case, refused ones at nothing: never less than the bill."""
    kinds = ("_429", "_500", "_400", "reset", "garbage", "cut", "nousage", "wrong", "shape", "hang")
    server.meet(**dict.fromkeys(kinds, 0.07))
    classifier = chat(server, timeout=0.5)
    texts = [f"text {number} about a #{CLASSES[number % 3]}" for number in range(200)]

    def spent(text: str) -> tuple[str, Fraction]:
        try:
            return "answered", cost_of(classifier.answer([text]))
        except CallRefusedError:
            return "refused", Fraction(0)
        except CallLostError:
            return "lost", classifier.max_cost([text])[0]

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(spent, texts))
    assert {outcome for outcome, _ in outcomes} == {"answered", "refused", "lost"}
    known, bill = sum(cost for _, cost in outcomes), server.bill()
    assert bill["spent"] <= known < 3 * bill["spent"]
    assert bill["most_at_once"] <= 8 + bill["by_fault"]["hang"]


def test_event_loops_may_come_and_go(server: BillingServer) -> None:
    """The async twin works from any loop, side by side, and a call can be called off."""
    classifier = chat(server)

    async def many() -> list[Answers]:
        return await asyncio.gather(*(classifier.aanswer([f"{number} #cat"]) for number in range(10)))

    assert len(asyncio.run(many())) == len(asyncio.run(many())) == 10
    server.meet(hang=1.0)

    async def hurried() -> None:
        await asyncio.wait_for(classifier.aanswer(["a"]), 0.2)

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(hurried())
    assert time.monotonic() - begun < 10.0


def test_a_fork_makes_calls_of_its_own(server: BillingServer) -> None:
    """The thread that speaks HTTP does not survive a fork; the child starts another."""
    code = (
        "import os, sys, warnings; warnings.simplefilter('ignore')\n"
        "from occamroute.adapters.openai import ChatClassifier\n"
        f"options = dict(classes={CLASSES}, base_url='{server.url}/v1', model='mini', key_env='LLM_KEY')\n"
        "one = ChatClassifier('m', 1, **options)\n"
        "one.answer(['a #cat'])\n"
        "child = os.fork()\n"
        "one.answer(['a #cat'])\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
    assert server.bill()["billed"] == 3


def test_calls_under_way_do_not_keep_a_process(server: BillingServer) -> None:
    """It ends at once and without a word, though a thread still waits for an answer."""
    server.meet(hang=1.0)
    code = (
        "import threading, time\n"
        "from occamroute.adapters.openai import ChatClassifier\n"
        f"options = dict(classes={CLASSES}, base_url='{server.url}/v1', model='mini', key_env='LLM_KEY')\n"
        "one = ChatClassifier('m', 1, **options)\n"
        "threading.excepthook = lambda _: None\n"
        "threading.Thread(target=one.answer, args=(['a'], 20), daemon=True).start()\n"
        "time.sleep(1)\n"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert server.bill()["billed"] == 1
    assert time.monotonic() - begun < 15.0


def test_a_server_that_went_and_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was kept is not used for a server that is gone: the call is refused, not lost."""
    monkeypatch.setenv("LLM_KEY", KEY)
    with billing_server() as server:
        classifier, port = chat(server), server.port
        classifier.answer(["a #cat"])
    with pytest.raises(CallRefusedError, match="no connection"):
        classifier.answer(["a #cat"])
    with billing_server("--port", str(port)):
        assert not classifier.answer(["a #cat"]).failures


def test_the_key_is_nowhere(server: BillingServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not in errors, their causes, failures, representations, copies or logs, even if the server quotes it."""
    caplog.set_level(logging.DEBUG)
    classifier = chat(server)
    seen = [repr(classifier), str(vars(classifier)), repr(pickle.dumps(classifier))]
    for fault in ("echo", "wrong", "_401", "_404", "_429", "_500", "reset", "garbage", "redirect", "shape"):
        server.meet(**{fault: 1.0})
        try:
            seen.append(repr(classifier.answer(["a #cat"])))
        except oc.OccamError as error:
            chain: list[BaseException | None] = [error, error.__cause__, error.__context__]
            seen += [repr(one) + str(one) + repr(getattr(one, "request", "")) for one in chain]
    assert any("[key]" in text for text in seen)
    assert not [text for text in (*seen, caplog.text) if KEY in text or "very-secret" in text]
    assert "/v1/chat/completions" in caplog.text  # the logs were looked at


def test_a_key_between_which_signs_were_strewn_is_not_shown(server: BillingServer) -> None:
    """Signs that are taken out of a message cannot bring the key together again."""
    shown = chat(server).endpoint.shown("\x07".join(KEY))
    assert shown == "[key]"
    assert chat(server).endpoint.shown(f"x{KEY}y" + "z" * 300, 20) == "x[key]yzzzzzzzzzzzz…"


def test_a_missing_key_is_named_at_once(server: BillingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its variable; a key that no header can hold is refused without a look at it."""
    for value in (None, "", "  \n"):
        monkeypatch.delenv("LLM_KEY", raising=False)
        if value is not None:
            monkeypatch.setenv("LLM_KEY", value)
        with pytest.raises(oc.InvalidInputError, match="environment variable 'LLM_KEY', which is not set"):
            chat(server)
    monkeypatch.setenv("LLM_KEY", "two\nlines")
    with pytest.raises(oc.InvalidInputError, match="printable ASCII") as caught:
        chat(server)
    assert "two" not in str(caught.value)
    monkeypatch.setenv("LLM_KEY", KEY + "\n")  # as files and shells leave it
    assert not chat(server).answer(["a #cat"]).failures


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("https://me:hunter2@host/v1", "must hold no password, query or fragment: use https://host/v1"),
        ("https://hunter2@host/v1", "must hold no password"),
        ("https://host/v1?api-key=hunter2", "must hold no password"),
        ("https://host/v1#hunter2", "must hold no password"),
        ("host/v1", "must be like"),
        ("ftp://host/v1", "must be like"),
        ("https:///v1", "must be like"),
        ("http://host:99999/hunter2", "must be like"),
        ("http://host/v1 \r\nhunter2", "must be like"),
        ("", "must be like"),
    ],
)
def test_addresses_that_hold_a_secret_or_are_none(url: str, sentence: str) -> None:
    """Are refused, and not repeated."""
    with pytest.raises(oc.InvalidInputError, match=sentence) as caught:
        ChatClassifier("mini", PRICE, classes=CLASSES, base_url=url, model="mini")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_tokens": 0}, "max_tokens of classifier 'mini' must be a whole number ≥ 1, got 0"),
        ({"overhead_tokens": -1}, "overhead_tokens .* ≥ 0, got -1"),
        ({"timeout": 0}, "timeout .* seconds above 0, got 0"),
        ({"timeout": float("nan")}, "timeout .* got nan"),
        ({"retries": 1.5}, "retries .* got 1.5"),
        ({"concurrency": True}, "concurrency .* got True"),
        ({"per_minute": 0}, "per_minute .* got 0"),
        ({"cost": -1}, "cost of classifier 'mini' must be a finite number"),
        ({"classes": ("a", "a")}, "classes"),
        ({"extra": {"n": 3}}, "must not set 'n'"),
        ({"extra": {"api_key": "hunter2"}}, "must hold no key, got 'api_key'"),
    ],
)
def test_options_that_make_no_sense(server: BillingServer, options: dict[str, Any], sentence: str) -> None:
    """One sentence each."""
    with pytest.raises(oc.InvalidInputError, match=sentence):
        chat(server, **options)


def test_queries_that_are_no_single_text(server: BillingServer) -> None:
    """One text a call; predict_proba takes any number of them."""
    with pytest.raises(oc.InvalidInputError, match="takes 1 to 1 queries a call, got 2"):
        chat(server).answer(["a", "b"])
    with pytest.raises(oc.InvalidInputError, match="takes texts, got int"):
        chat(server).answer([3])
    assert chat(server).predict_proba([]).shape == (0, 3)
    assert chat(server).predict_proba(np.array(["a #cat", "b #dog"])).shape == (2, 3)


def test_proxies_of_the_environment_do_not_stand_before_loopback(
    server: BillingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are; no proxy knows what this machine's loopback address means."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for host in ("127.0.0.1", "localhost"):
        assert not chat(server, base_url=f"http://{host}:{server.port}/v1").answer(["a #cat"]).failures


def test_proxies_of_the_environment_count_for_other_hosts(server: BillingServer) -> None:
    """A host that only the proxy can reach is reached; a proxy that is not there is a refusal."""
    code = (
        "import sys\n"
        "from occamroute.adapters.openai import ChatClassifier\n"
        f"one = ChatClassifier('m', 1, classes={CLASSES}, base_url='http://far.invalid/v1', model='mini')\n"
        "print(type(one).__name__)\n"
        "try:\n"
        "    one.answer(['a #cat'])\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        requests: list[bytes] = []

        def serve() -> None:
            connection, _ = proxy.accept()
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        found = _printed(code, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        thread.join(timeout=10)
    assert requests[0].startswith(b"POST http://far.invalid/v1/chat/completions ")
    assert "UnavailableError 'm' answered 404." in found
    assert "CallRefusedError 'm' has no connection" in _printed(code, "http://127.0.0.1:9")


def _printed(code: str, proxy: str) -> str:
    environment = {**os.environ, "HTTP_PROXY": proxy, "http_proxy": proxy, "NO_PROXY": "", "no_proxy": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_the_request_is_what_the_api_asks_for(server: BillingServer) -> None:
    """The default instructions list the labels; extra fields are sent; no option can be overridden by them."""
    body = chat(server, extra={"reasoning_effort": "low", "temperature": 1})._body("hello")
    assert body["messages"][1] == {"role": "user", "content": "hello"}
    assert body["messages"][0]["content"].endswith("\ncat\ndog\neel")
    assert (body["reasoning_effort"], body["temperature"], body["max_tokens"]) == ("low", 1, 16)
    json.dumps(body)


def test_importing_needs_no_httpx_and_making_one_says_so(tmp_path: Path) -> None:
    """The sentence names the extra."""
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError('no', name='httpx')")
    code = (
        "from occamroute.adapters.openai import ChatClassifier\n"
        "try:\n"
        "    ChatClassifier('m', 1, classes=('a', 'b'), base_url='http://localhost/v1', model='m')\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert "occamroute[http]" in done.stdout


def test_the_peer_that_is_tested_is_httpx() -> None:
    """Its trace of events is what tells whether anything was sent: a version without it must not pass unseen."""
    events: list[str] = []
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.ConnectError):
        client.get("http://127.0.0.1:9", extensions={"trace": lambda event, _: events.append(event)})
    assert "connection.connect_tcp.started" in events
