"""The story of a plan: what it will cost, how often it will be right, and the proof that no plan is better."""

from __future__ import annotations

from collections.abc import Sequence

from occamroute._money import exact
from occamroute.charts import Canvas
from occamroute.charts.pictures import frontier_chart, usage_chart
from occamroute.charts.words import amount, between, brief, counted, part_of, percent, plain_percent
from occamroute.planning.estimates import Estimate
from occamroute.planning.plans import Plan, verify
from occamroute.reporting.exploring.openings import explore_plan
from occamroute.reporting.exploring.singles import Single, dearest, singles
from occamroute.reporting.pieces import Section, facts, paragraph, shown, table
from occamroute.reporting.plan_origin import plan_origin
from occamroute.reporting.plan_surroundings import around_section
from occamroute.reporting.profile_story import classifier_table
from occamroute.reporting.provenance import require_same_profile
from occamroute.reporting.stories import Figure, Source, Story

__all__ = ["OPTIMISTIC", "plan_story", "usage_section"]

OPTIMISTIC = (
    "The expected accuracy is the plain mean of the chosen estimates, which is optimistic: choosing the highest of "
    "several estimates prefers those that happen to be too high. No interval is known for it. `oc.plan` and "
    "`occamroute plan` correct it on held-out rows and give one."
)
UNLABELLED = (
    "Nothing is known yet of how right these answers are: calibration needs labels, as in `occamroute compare`."
)


def plan_story(plan: Plan, source: Source) -> Story:
    """What a plan tells; its certificate is recomputed first."""
    verify(plan)
    known = {} if source.profile is None else {source.profile.fingerprint: source.profile}
    require_same_profile(source, known, plan.made_from.get("profile"), "plan")
    behind = explore_plan(plan).estimate
    alone = singles(behind)
    most = dearest(alone)
    share = float(exact(plan.planned_cost) / most.cost) if most.cost else 1.0
    return Story(
        kind="plan",
        title=_title(plan, most.name, share),
        sentence=(
            f"The plan answers {counted(len(plan), 'query', 'queries')} for {brief(plan.planned_cost)} of a budget of "
            f"{brief(float(plan.budget))}, feature extraction included, and is expected to be right on "
            f"{percent(plan.expected_accuracy, plan.accuracy_interval)} of them."
        ),
        figures=(
            Figure(
                f"Cost saved against always asking {most.name}", f"{100 * (1 - share):.1f} %".replace("-", "−"),
                f"exact: {brief(plan.planned_cost)} instead of {brief(float(most.cost))}", 1 - share,
            ),
            Figure(
                "Expected accuracy", plain_percent(plan.expected_accuracy),
                _surety(plan), plan.expected_accuracy, plan.accuracy_interval,
            ),
            Figure(
                "Below the best possible plan by at most", _small(plan.gap),
                f"proved for the estimates; checked {source.time}", plan.gap,
            ),
        ),
        chart=lambda canvas: _chart(plan, behind, canvas),
        caption=(
            "The best plan at every budget, by the same estimates, from the solver. The line is the mean of chosen "
            "estimates (after the penalty, if any): optimistic, with no interval known. The point is this plan and "
            "what it promises, with its 90 % interval where there is one."
        ),
        sections=(
            _certificate(plan, source),
            around_section(plan),
            usage_section(plan.usage, {name: float(cost) for name, cost in _paid(plan).items()}, len(plan)),
            _alone(plan, alone, source),
            Section("calibration", "Calibration", paragraph(UNLABELLED)),
            *plan_origin(plan, source),
        ),
        warnings=() if plan.accuracy_interval is not None else (OPTIMISTIC,),
    )  # fmt: skip


def _title(plan: Plan, name: str, share: float) -> str:
    queries = counted(len(plan), "query", "queries")
    if share >= 1.0:
        return f"{queries}, expected right on {plain_percent(plan.expected_accuracy)}"
    return f"{queries} for {part_of(share)} of what always asking {name} costs"


def _small(gap: float) -> str:
    return "0 %" if gap == 0.0 else "0.01 %" if gap <= 1e-4 else f"{100 * gap:.2g} %"


def _surety(plan: Plan) -> str:
    interval = plan.accuracy_interval
    return "optimistic; no interval known" if interval is None else f"90 %: {between(interval)}"


def _chart(plan: Plan, behind: Estimate, canvas: Canvas) -> str:
    front = behind.frontier().spread(300)
    best = plan.problem.objective == "mean"
    label = "mean estimate" if best else "mean estimate (the plan is for the worst query)"
    spot = plan.planned_cost, plan.expected_accuracy, plan.accuracy_interval
    return frontier_chart(*front.points(), plan=spot, y_label=label, canvas=canvas)


def _certificate(plan: Plan, source: Source) -> Section:
    worst = plan.problem.objective == "min"
    what = "worst value of a query" if worst else "mean value"
    body = paragraph(
        f"Recomputed from the plan's problem, choice and price alone, with no solver, when this page was made "
        f"({source.time}): it holds. These numbers are exact statements about the estimates, not about the truth."
    ) + facts([
        ("status", plan.status),
        ("planned cost", f"{amount(plan.planned_cost)} of {amount(float(plan.budget))} (exact)"),
        (what, f"{plan.value:.9g} (exact)"),
        ("upper bound for any plan within the budget", f"{plan.bound:.9g} (proved)"),
        ("gap", f"{plan.gap:.3g} (proved)"),
        ("price: right answers per unit of money", f"{plan.price:.6g} (exact)"),
        ("objective", "the worst query first" if worst else "the mean"),
    ])  # fmt: skip
    return Section("certificate", "Certificate", body)


def _paid(plan: Plan) -> dict[str, float]:
    """What the queries of each classifier cost, extraction included."""
    costs = plan.costs
    return {name: float(costs[plan.choice == column].sum()) for column, name in enumerate(plan.names)}


def usage_section(usage: dict[str, int], paid: dict[str, float], queries: int) -> Section:
    """Who answers how many queries, and for how much."""
    order = sorted(usage, key=lambda name: -usage[name])
    rows = [
        (name, f"{usage[name]:,}", f"{100 * usage[name] / max(1, queries):.2f} %", amount(paid[name])) for name in order
    ]
    body = shown(lambda canvas: usage_chart(usage, queries, canvas=canvas)) + table(
        ("classifier", "queries", "share", "cost of these queries"), rows,
        caption="Who answers; counts and costs are exact, extraction is included in the cost of each query",
    )  # fmt: skip
    return Section("usage", "Who answers", body)


def _alone(plan: Plan, alone: Sequence[Single], source: Source) -> Section:
    """Each classifier for everything: what it would cost, and how accurate the profile's rows say it is."""
    added = {one.name: (amount(float(one.cost)), _saved(plan, float(one.cost))) for one in alone}
    headings = ("cost for everything", "the plan costs")
    if source.profile is None:
        rows = [(name, *cells) for name, cells in added.items()]
        body = table(("classifier", *headings), rows, caption="One classifier for all queries (exact)")
        body += paragraph("How accurate each is by itself stands in the profile: give it with `--profile`.")
    else:
        body = classifier_table(source.profile, added, headings)
    return Section("singles", "One classifier for everything", body)


def _saved(plan: Plan, cost: float) -> str:
    return f"{100 * plan.planned_cost / cost:.1f} % of that" if cost else "–"
