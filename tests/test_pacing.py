"""Prices and paces: what a query may cost now, so that a budget lasts its window and is used up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from occamroute.routing.pacing import Arrivals, Moment, Pace, cautious
from occamroute.routing.prices import HIGHEST, Price, Prices, choose

DAY = 86_400.0


def table(seed: int, rows: int, options: int, *, levels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    success = random.random((rows, options))
    if levels:
        success = np.round(success * levels) / levels
    costs = np.sort(random.random(options))
    costs[0] = 0.0 if seed % 2 else costs[0]
    return success, costs


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 5), st.sampled_from([None, 2, 4]), st.floats(0, 1))
@settings(deadline=None, max_examples=150)
def test_a_price_makes_queries_cost_what_they_may(
    seed: int, rows: int, options: int, levels: int | None, place: float
) -> None:
    """The rows that prices were made from cost on average what was asked for, ties bought by coins."""
    success, costs = table(seed, rows, options, levels=levels)
    prices = Prices.of(success, costs)
    rate = prices.costs[0] + place * (prices.costs[-1] - prices.costs[0])
    price = prices.at(rate)
    low, high = (costs[choose(success, costs, price, np.full(rows, coin))].mean() for coin in (1.0, 0.0))
    if price.value == HIGHEST:
        assert low == high == pytest.approx(prices.costs[0])
    elif price.value == 0.0:
        assert low == pytest.approx(prices.costs[-1])
    else:
        assert low - 1e-9 <= rate <= high + 1e-9
        assert low + price.share * (high - low) == pytest.approx(rate, abs=1e-7)
    assert prices.cost_at(price) == pytest.approx(rate, abs=1e-9)


@given(st.integers(0, 10_000), st.floats(0, 3))
@settings(deadline=None, max_examples=60)
def test_higher_prices_buy_less(seed: int, value: float) -> None:
    """What queries cost at a price falls with the price, and is what choosing at it gives."""
    success, costs = table(seed, 40, 4)
    prices = Prices.of(success, costs)
    chosen = costs[choose(success, costs, Price(value), np.ones(40))].mean()
    assert prices.cost_at(Price(value)) == pytest.approx(chosen, abs=1e-9)
    assert prices.cost_at(Price(value * 1.1)) <= prices.cost_at(Price(value)) + 1e-12


def test_without_money_everybody_gets_the_cheapest() -> None:
    """At the highest price no estimate is worth a unit; at 0 the best is bought, of equals the cheapest."""
    success, costs = np.array([[0.1, 1.0, 1.0]]), np.array([1e-9, 1.0, 2.0])
    prices = Prices.of(success, costs)
    assert choose(success, costs, prices.at(0.0), np.zeros(1)).tolist() == [0]
    assert choose(success, costs, Price(0.0), np.ones(1)).tolist() == [1]


def test_one_classifier_needs_no_price() -> None:
    """A single classifier is always chosen."""
    prices = Prices.of(np.full((3, 1), 0.5), np.array([2.0]))
    for rate in (0.0, 2.0, 5.0):
        assert choose(np.full((2, 1), 0.5), np.array([2.0]), prices.at(rate), np.array([0.0, 1.0])).tolist() == [0, 0]


def test_a_number_counts_down_and_fades_out() -> None:
    """Without an end in time the promised number counts down; spending fades out instead of ending."""
    arrivals = Arrivals(1000)
    moment = Moment(5.0)
    assert arrivals.remaining(moment) == 1000
    arrivals.add(600, moment)
    assert arrivals.remaining(moment) == 400
    arrivals.add(399, moment)
    assert arrivals.remaining(moment) == 10
    arrivals.add(1001, moment)
    assert arrivals.remaining(moment) == 1000


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0, 3.5])
@pytest.mark.parametrize("given_number", [1000, None])
def test_the_speed_of_arrivals_is_learned(times: float, given_number: int | None) -> None:
    """Half or twice as many as promised are noticed long before the window ends."""
    arrivals = Arrivals(given_number)
    for number in range(int(1000 * times)):
        arrivals.add(1, Moment(DAY * number / (1000 * times), 0.0, DAY))
        if number == int(500 * times):
            left = arrivals.remaining(Moment(DAY / 2, 0.0, DAY))
            assert left == pytest.approx(500 * times, rel=0.2)


def test_a_burst_is_no_rate() -> None:
    """Promised queries that come all at once are still only as many as were promised."""
    arrivals = Arrivals(1000)
    for number in range(500):
        arrivals.add(1, Moment(0.01 * number, 0.0, DAY))
    assert arrivals.remaining(Moment(5.0, 0.0, DAY)) == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(("given_number", "expected"), [(1000, 900.0), (None, 100.0)])
def test_those_who_come_late_are_expected_too(given_number: int | None, expected: float) -> None:
    """After a quiet day a thousand come in its last hour: a hundred tell how fast, a promise how many."""
    arrivals = Arrivals(given_number)
    arrivals.remaining(Moment(0.0, 0.0, DAY))
    for number in range(100):
        arrivals.add(1, Moment(DAY * (23 + number / 1000) / 24, 0.0, DAY))
    assert arrivals.remaining(Moment(DAY * 23.1 / 24, 0.0, DAY)) == pytest.approx(expected, rel=0.2)


def test_a_clock_that_is_looked_at_now_and_then() -> None:
    """Half of what was promised, so many a second that hundreds come at one moment: that is no burst."""
    arrivals, minute = Arrivals(2_000_000), DAY / 1440
    for number in range(720):
        for _ in range(70):
            arrivals.add(10, Moment(number * minute, 0.0, DAY))
    assert arrivals.remaining(Moment(719 * minute, 0.0, DAY)) == pytest.approx(500_000, rel=0.2)


def test_a_burst_that_comes_every_day() -> None:
    """A thousand at midnight, day by day, are no forty thousand: the budget is for those."""
    arrivals = Arrivals()
    for day in range(2):
        for number in range(500 if day else 1000):
            arrivals.add(1, Moment(DAY * (day + number / 24_000), day * DAY, (day + 1) * DAY))
    assert 500 < arrivals.remaining(Moment(DAY * (1 + 500 / 24_000), DAY, 2 * DAY)) < 1100


def test_a_new_window_starts_anew_and_remembers_the_last() -> None:
    """Without a promise, a window is expected to be like the one before it."""
    arrivals = Arrivals()
    for number in range(100):
        arrivals.add(1, Moment(DAY * number / 100, 0.0, DAY))
    assert arrivals.remaining(Moment(DAY, DAY, 2 * DAY)) == pytest.approx(100, rel=0.15)
    assert arrivals.seen == 0


def test_the_end_of_a_window_tells_little_of_the_next() -> None:
    """Three queries in the last hundredth of a second are no three million a day."""
    arrivals = Arrivals()
    for number in range(3):
        arrivals.add(1, Moment(DAY - 0.01 + number / 1000, 0.0, DAY))
    assert arrivals.remaining(Moment(DAY, DAY, 2 * DAY)) < 5000
    for number in range(100):
        arrivals.add(1, Moment(DAY + DAY * number / 200, DAY, 2 * DAY))
    assert arrivals.remaining(Moment(1.5 * DAY, DAY, 2 * DAY)) < 400


def test_a_busy_day_after_a_quiet_one() -> None:
    """Four queries on Sunday are no reason to spend Monday's money on the first few of thousands."""
    arrivals = Arrivals()
    for number in range(4):
        arrivals.add(1, Moment(DAY * number / 4, 0.0, DAY))
    for number in range(100):
        arrivals.add(1, Moment(DAY + DAY * number / 1000, DAY, 2 * DAY))
    assert 500 < arrivals.remaining(Moment(1.1 * DAY, DAY, 2 * DAY)) < 1000


def test_a_router_that_begins_late_counts_from_there() -> None:
    """Beginning at noon is no sign that few queries come."""
    arrivals = Arrivals(1000)
    noon = Moment(DAY / 2, 0.0, DAY)
    assert arrivals.remaining(noon) == pytest.approx(500, rel=0.06)
    other = Arrivals()
    for number in range(100):
        other.add(1, Moment(DAY / 2 + number * DAY / 400, 0.0, DAY))
    assert other.remaining(Moment(0.75 * DAY, 0.0, DAY)) == pytest.approx(100, rel=0.15)


def test_others_queries_count_too() -> None:
    """Where only a quarter of the queries comes here, four times as many are expected."""
    arrivals = Arrivals(1000)
    for number in range(125):
        arrivals.add(1, Moment(DAY * number / 250, 0.0, DAY))
    assert arrivals.remaining(Moment(DAY / 2, 0.0, DAY), share=0.25) == pytest.approx(500, rel=0.1)


def test_others_queries_are_among_those_that_were_promised() -> None:
    """A quarter of all queries comes here: a hundred seen are four hundred that came, with and without a clock."""
    arrivals, endless = Arrivals(1000), Moment(5.0)
    arrivals.add(100, endless)
    assert arrivals.remaining(endless, share=0.25) == 600
    timed, noon = Arrivals(1000), Moment(DAY / 2, 0.0, DAY)
    timed.remaining(Moment(0.0, 0.0, DAY))
    timed.add(100, Moment(DAY / 4, 0.0, DAY))
    assert timed.remaining(noon, share=0.25) == pytest.approx(400, rel=0.1)


def test_a_new_window_remembers_others_queries_too() -> None:
    """What came elsewhere yesterday is expected today, before anybody can tell today's share."""
    arrivals = Arrivals()
    for number in range(100):
        moment = Moment(DAY * number / 100, 0.0, DAY)
        arrivals.add(1, moment)
        arrivals.remaining(moment, share=0.25)
    assert arrivals.remaining(Moment(DAY, DAY, 2 * DAY)) == pytest.approx(400, rel=0.1)


def test_costs_are_learned() -> None:
    """Queries that cost twice what the profile says are noticed after some hundred; once is no proof."""
    pace = Pace(Arrivals(10))
    assert pace.off == 1.0
    pace.learn(1.0, 2.0)
    assert pace.off < 1.02
    for _ in range(4000):
        pace.learn(1.0, 2.0)
    assert math.isclose(pace.off, 2.0, rel_tol=0.05)
    for _ in range(100_000):
        pace.learn(1.0, 1000.0)
    assert pace.off == 4.0


def test_faded_costs_no_longer_count() -> None:
    """After two half-lives at the planned cost, a quarter of an earlier doubling is left."""
    pace = Pace(Arrivals(10))
    for _ in range(20_000):
        pace.learn(1.0, 2.0)
    for _ in range(4000):
        pace.learn(1.0, 1.0)
    assert pace.off == pytest.approx(1.25, abs=0.01)


@pytest.mark.parametrize("expected", [1, 10, 100, 10_000])
def test_a_cautious_number_is_hardly_ever_exceeded(expected: int) -> None:
    """Of arrivals that come by chance, more than the cautious number come less than once in 500 windows."""
    assert poisson.sf(cautious(expected), expected) < 1 / 500
    assert cautious(expected) < expected + 4.0 * math.sqrt(expected) + 3.0


def test_expected_arrivals_have_a_margin_of_one_standard_deviation() -> None:
    """Half of the promised thousand are left at noon; the square root of their number is added."""
    assert Arrivals(1000).remaining(Moment(DAY / 2, 0.0, DAY)) == pytest.approx(500 + math.sqrt(500))


def test_a_number_resumes_where_the_budget_stands() -> None:
    """With a quarter of the budget used, a quarter of the promised queries has come; a window ends by time instead."""
    arrivals, endless = Arrivals(1000), Moment(5.0)
    arrivals.resume(0.25, endless)
    assert arrivals.remaining(endless) == 750
    arrivals.resume(1.5, endless)
    assert arrivals.seen == 1000
    timed = Arrivals(1000)
    timed.resume(0.25, Moment(0.0, 0.0, DAY))
    assert timed.seen == 0


def test_a_slightly_faster_moment_is_no_new_speed() -> None:
    """The latest arrivals come 1.3 times as fast as the rest: the speed of the whole window counts."""
    arrivals = Arrivals()
    arrivals.remaining(Moment(0.0, 0.0, DAY))
    slow = [DAY * (0.65 * number / 640) for number in range(640)]
    fast = [DAY * (0.65 + 0.05 * number / 64) for number in range(65)]
    for now in slow + fast:
        arrivals.add(1, Moment(now, 0.0, DAY))
    expected = 706 / 0.701 * 0.3
    assert arrivals.remaining(Moment(0.7 * DAY, 0.0, DAY)) == pytest.approx(expected + math.sqrt(expected))


def test_others_queries_come_as_fast_as_those_here() -> None:
    """A quarter of all queries comes here, 200 in 48 minutes late in the day: 50 more here, 200 more in all."""
    arrivals, hour = Arrivals(), DAY / 24
    arrivals.remaining(Moment(0.0, 0.0, DAY))
    for number in range(200):
        arrivals.add(1, Moment(hour * (23 + 0.8 * number / 200), 0.0, DAY))
    left = arrivals.remaining(Moment(23.8 * hour, 0.0, DAY), share=0.25)
    assert left == pytest.approx(200 + math.sqrt(200), rel=0.03)
