"""Charts: what is drawn stands where the numbers say, texts stay apart and inside, names stay text."""

from __future__ import annotations

import re
import time
from itertools import combinations
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamroute.charts import NARROW, WIDE, Canvas, Series, interval_bars, line_chart, share_bars, stacked_bars
from occamroute.charts.drawing import text_width
from occamroute.charts.pictures import (
    calibration_chart,
    classifier_chart,
    frontier_chart,
    named_points,
    pareto_mask,
    usage_chart,
)

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314  # the product's own picture


def boxes(picture: str) -> list[tuple[str, float, float, float]]:
    """Each text with its left and right end and its height."""
    found = []
    for text in parsed(picture).iter(f"{SVG}text"):
        shown, x = text.text or "", float(text.attrib["x"])
        wide = text_width(shown)
        left = {"end": x - wide, "middle": x - wide / 2}.get(text.attrib.get("text-anchor", "start"), x)
        found.append((shown, left, left + wide, float(text.attrib["y"])))
    return found


@pytest.mark.parametrize("canvas", [WIDE, NARROW])
def test_points_bars_and_bands_stand_where_the_numbers_say(canvas: Canvas) -> None:
    """Places are linear in the numbers: halfway is halfway, and an interval reaches as far as it says."""
    points = Series("p", [0, 5, 10], [0, 50, 100], line=False, points=True, low=[0, 40, 90], high=[10, 60, 100])
    band = Series("b", [0, 10], [50, 50], low=[25, 25], high=[75, 75])
    picture = parsed(line_chart([points, band], title="t", x_label="x", y_label="y", canvas=canvas))
    places = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in picture.iter(f"{SVG}circle")][:3]
    assert places[1] == pytest.approx(np.mean([places[0], places[2]], axis=0), abs=0.1)
    assert places[0][1] > places[2][1]  # up is more
    height = (places[0][1] - places[2][1]) / 100
    bars = [re.match(r"M[\d.]+ ([\d.]+)V([\d.]+)", one.attrib["d"]) for one in picture.iter(f"{SVG}path")]
    reach = [float(bar[1]) - float(bar[2]) for bar in bars if bar]
    assert reach == pytest.approx([10 * height, 20 * height, 10 * height], abs=0.2)
    (polygon,) = picture.iter(f"{SVG}polygon")
    heights = sorted({float(pair.split(",")[1]) for pair in polygon.attrib["points"].split()})
    assert heights[1] - heights[0] == pytest.approx(50 * height, abs=0.2)


@pytest.mark.parametrize("unit", [1e-200, 1e-14, 1e-9, 1.0, 1e15, 1e200])
def test_places_do_not_depend_on_the_unit(unit: float) -> None:
    """Whether a call costs the billionth of a coin or billions of them."""
    series = Series("p", [unit, 2 * unit, 3 * unit], [0, 1, 2], line=False, points=True)
    picture = parsed(line_chart([series], title="t", x_label="x", y_label="y"))
    places = [float(one.attrib["cx"]) for one in picture.iter(f"{SVG}circle")][:3]
    left, right = WIDE.left, WIDE.width - WIDE.right
    assert places == pytest.approx([left, (left + right) / 2, right], abs=1)


def test_thousands_of_classifiers_are_drawn_at_once() -> None:
    """With the names of those that nobody beats; all others have theirs where a pointer rests."""
    random = np.random.default_rng(0)
    costs, right = random.random(2_000), random.random(2_000)
    names = [f"model {number}" for number in range(2_000)]
    began = time.perf_counter()
    picture = classifier_chart(names, costs, right, np.column_stack([right, right]))
    assert time.perf_counter() - began < 10.0
    best = {name for name, one in zip(names, pareto_mask(costs, right), strict=True) if one}
    assert {text for text, *_ in boxes(picture) if text.startswith("model")} <= best
    assert all(f"<title>{name}: " in picture for name in names)
    assert {name for name in named_points(names[:30], costs[:30], right[:30]) if name} < set(names[:30])
    assert named_points(names[:7], costs[:7], right[:7]) == names[:7]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.001, 100), st.floats(0.1, 1)), min_size=1, max_size=12),
    st.sampled_from([WIDE, NARROW]),
)
def test_names_of_classifiers_never_cover_each_other(places: list[tuple[float, float]], canvas: Canvas) -> None:
    """However near classifiers are: what is shown of their names is apart and inside the picture."""
    costs, accuracies = np.array(places).T
    names = [f"classifier {number}" for number in range(len(places))]
    bounds = np.column_stack([accuracies * 0.97, np.minimum(1.0, accuracies * 1.02)])
    texts = boxes(classifier_chart(names, costs, accuracies, bounds, canvas=canvas))
    shown = [box for box in texts if box[0] in names]
    for one, other in combinations(shown, 2):
        assert one[2] <= other[1] or other[2] <= one[1] or abs(one[3] - other[3]) >= 13
    for text, left, right, _ in shown:
        assert left >= 0, text
        assert right <= canvas.width + 0.1, text


def test_names_are_text_in_every_picture() -> None:
    """Markup in a name is neither lost nor obeyed, and every picture is one well-formed tree."""
    name = "<script>&\"'</script>"
    ones = np.array([1.0, 2.0])
    for picture in (
        classifier_chart([name, "b"], ones, ones / 4, np.column_stack([ones / 5, ones / 3])),
        usage_chart({name: 3, "b": 1, "none": 0}, 4),
        share_bars([name], [1.0], [name], title=name),
        interval_bars([name], [1.0], [(0.5, 1.5)], title=name, x_label=name),
        stacked_bars([name], {name: [1.0]}, title=name, x_label=name, y_label=name),
        line_chart(
            [Series(name, [1, 2], [1, 2], points=True, tips=[name], labels=[name])], title=name, x_label="", y_label=""
        ),
    ):  # fmt: skip
        assert "<script" not in picture
        assert not list(parsed(picture).iter(f"{SVG}script"))
    assert any(text == name for text, *_ in boxes(usage_chart({name: 3}, 4, canvas=Canvas(width=900))))
    # What no XML can hold is shown as missing, and the rest is still a tree.
    assert boxes(usage_chart({"a\x00\x1b\uffffb": 3}, 4))[0][0] == "a\ufffd\ufffd\ufffdb"


def test_usage_is_in_proportion() -> None:
    """Bars are as long as their numbers, the busiest first, and who answers nothing is left out."""
    picture = parsed(usage_chart({"a": 10, "b": 40, "c": 0}, 50))
    widths = [float(one.attrib["width"]) for one in picture.iter(f"{SVG}rect")]
    assert widths[0] == pytest.approx(4 * widths[1], abs=0.2)
    texts = [text for text, *_ in boxes(usage_chart({"a": 10, "b": 40, "c": 0}, 50))]
    assert texts == ["b", "40 (80.0 %)", "a", "10 (20.0 %)"]


def test_calibration_and_frontier_are_drawn_with_their_intervals() -> None:
    """A point for each group with a bar; a plan on its frontier with the bar of its promise, or without one."""
    picture = parsed(calibration_chart([0.2, 0.8], [0.3, 0.7], [0.2, 0.6], [0.4, 0.8]))
    assert len(list(picture.iter(f"{SVG}path"))) == 2
    for interval, bars in (((0.6, 0.8), 1), (None, 0)):
        picture = parsed(frontier_chart([1, 2, 3], [0.5, 0.6, 0.7], plan=(2.0, 0.7, interval)))
        assert len(list(picture.iter(f"{SVG}path"))) == bars


def test_the_pareto_line_is_that_of_the_definition() -> None:
    """Equal ones are both on it; what another beats in both is not."""
    assert pareto_mask([1, 2, 2, 3], [0.5, 0.7, 0.7, 0.6]) == [True, True, True, False]
