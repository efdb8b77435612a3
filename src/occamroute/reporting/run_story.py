"""The story of a run: what was bought, what it cost, what failed."""

from __future__ import annotations

from collections import Counter

from occamroute._money import exact
from occamroute.charts import Canvas, share_bars
from occamroute.charts.words import Interval, amount, between, percent, plain_percent
from occamroute.execution.runs import Run
from occamroute.planning.plans import verify
from occamroute.reporting.pieces import Section, facts, paragraph, table
from occamroute.reporting.plan_story import usage_section
from occamroute.reporting.provenance import again_section, data_section, doctor_sections, require_same_profile
from occamroute.reporting.run_labels import Judged, judged, judged_section
from occamroute.reporting.stories import Figure, Source, Story

__all__ = ["run_story"]

SHOWN = 20


def run_story(run: Run, source: Source) -> Story:
    """What a run tells."""
    known = {} if source.profile is None else {source.profile.fingerprint: source.profile}
    require_same_profile(source, known, run.made_from.get("profile"), "run")
    if run.plan is not None:
        verify(run.plan)
    found = None if source.labels is None else judged(run, source.labels)
    answered = len(run) - len(run.failures)
    budget = exact(run.budget)
    used = float(run.exact_spent / budget) if budget else 0.0
    interval = run.accuracy_interval
    return Story(
        kind="run",
        title=f"{answered:,} of {len(run):,} queries answered for {amount(run.spent)}",
        sentence=(
            f"{amount(run.spent)} of a budget of {amount(float(run.budget))} was spent, "
            f"{f'{amount(run.lost)} of it' if run.lost else 'nothing of it'} on calls that gave no answer; the answers "
            f"are expected to be right on "
            f"{percent(run.expected_accuracy, interval)} of all queries."
        ),
        figures=(
            Figure(
                "Of the budget, spent", f"{100 * used:.1f} %",
                f"exact: {amount(run.spent)} of {amount(float(run.budget))}", run.spent,
            ),
            Figure(
                "Expected accuracy", plain_percent(run.expected_accuracy),
                f"90 %: {between(interval)}" if interval else "no interval known: see below",
                run.expected_accuracy, interval,
            ),
            _last_figure(run, found),
        ),
        chart=lambda canvas: _money_chart(run, canvas),
        caption="Where the money went (exact): queries by who answered them, and calls that gave no answer.",
        sections=(
            usage_section(run.usage, _paid(run), len(run)),
            *(() if found is None else (judged_section(run, found),)),
            _failures(run),
            _expectation(run, interval, found),
            _reasons(run),
            *_origin(run, source),
        ),
        warnings=_warnings(run, interval),
    )  # fmt: skip


def _last_figure(run: Run, found: Judged | None) -> Figure:
    """How right the answers are, where that is known, else how many are missing."""
    if found is None:
        return Figure("Without an answer", f"{len(run.failures):,}", f"of {len(run):,}, counted", len(run.failures))
    what = "Right, by all labels" if len(found.rows) == len(run) else f"Right, of {len(found.rows):,} with labels"
    return Figure(
        what, plain_percent(found.accuracy), f"90 %: {between(found.interval)}", found.accuracy, found.interval
    )


def _warnings(run: Run, interval: Interval) -> tuple[str, ...]:
    found = []
    if run.failures:
        found.append(f"{len(run.failures):,} of {len(run):,} queries have no answer; they count as wrong here.")
    if interval is None:
        found.append("No interval is known for the expected accuracy of what was bought.")
    return tuple(found)


def _paid(run: Run) -> dict[str, float]:
    """What the queries that each classifier answered cost, extraction included."""
    return {name: float(run.cost[run.choice == column].sum()) for column, name in enumerate(run.names)}


def _money_chart(run: Run, canvas: Canvas) -> str:
    paid = {name: cost for name, cost in _paid(run).items() if cost}
    unanswered = float(run.cost[run.choice < 0].sum())
    paid |= {"unanswered queries": unanswered} if unanswered else {}
    paid |= {"calls without an answer": run.lost} if run.lost else {}
    left = float(exact(run.budget) - run.exact_spent)
    paid |= {"left of the budget": left} if left > 0.0 else {}
    texts = [amount(cost) for cost in paid.values()]
    return share_bars(list(paid), list(paid.values()), texts, title="Where the money went", canvas=canvas)


def _failures(run: Run) -> Section:
    if not run.failures:
        return Section("failures", "What failed", paragraph("Every query has an answer."))
    reasons = Counter(run.failures.values())
    rows = []
    for reason, count in reasons.most_common(SHOWN):
        first = [run.ids[row] for row, why in run.failures.items() if why == reason][:3]
        rows.append((f"{count:,}", reason, ", ".join(first)))
    more = len(reasons) - len(rows)
    body = table(
        ("queries", "why there is no answer", "for example"), rows, text=(1, 2),
        caption="Queries without an answer, by reason (counted)",
    ) + (paragraph(f"And {more:,} reasons more.") if more > 0 else "")  # fmt: skip
    return Section("failures", "What failed", body)


def _expectation(run: Run, interval: Interval, found: Judged | None) -> Section:
    stated = run.made_from.get("accuracy_interval")
    promised = run.made_from.get("expected_accuracy")
    pairs = [("expected of what was bought", percent(run.expected_accuracy, interval))]
    if isinstance(promised, float):
        ends = None if stated is None else (float(stated[0]), float(stated[1]))
        pairs.append(("promised by the plan", percent(promised, ends)))
    if isinstance(run.made_from.get("planned_cost"), float):
        pairs.append(("planned cost", f"{amount(run.made_from['planned_cost'])} (exact)"))
    pairs += [("spent", f"{amount(run.spent)} (exact)"), ("lost to calls without an answer", amount(run.lost))]
    if found is not None:
        pairs.insert(0, (f"right, of {len(found.rows):,} with labels", percent(found.accuracy, found.interval)))
    below = paragraph("How right they are is not known: give labels with `--labels`.") if found is None else ""
    return Section("expectation", "Promised and bought", facts(pairs) + below)


def _reasons(run: Run) -> Section:
    counted = Counter(str(why) for row, why in enumerate(run.reason.tolist()) if row not in run.failures)
    rows = [(f"{count:,}", why) for why, count in counted.most_common(SHOWN)]
    body = table(("queries", "how they came by their answer"), rows, text=(1,), caption="Answers by how they were got")
    return Section("reasons", "How answers were got", body)


def _origin(run: Run, source: Source) -> tuple[Section, ...]:
    made = run.made_from
    certificate = (
        f"The plan's certificate was recomputed when this page was made ({source.time}): it holds."
        if run.plan is not None
        else "A saved run does not hold its plan: save the plan too to have its certificate checked."
    )
    return (
        Section("certificate", "Certificate", paragraph(certificate)),
        data_section(
            {
                "profile": made.get("profile"),
                "classifiers": ", ".join(run.names),
                "prices": ", ".join(f"{name} {price}" for name, price in (made.get("prices") or {}).items()) or None,
                "features of": made.get("extractor") or "nobody: none were looked at",
                "estimator": made.get("estimator"),
                "seed": made.get("seed"),
            },
            made_by=made.get("version"),
        ),
        *doctor_sections(source.profile),
        again_section(
            source, origin=None,
            note="Answers are bought once: `occamroute classify` with the same journal goes on where it stopped and "
            "pays for nothing twice; without it, it buys them again.",
        ),
    )  # fmt: skip
