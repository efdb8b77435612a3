"""All studies on one self-contained HTML page: what the paper found, what we find, the pictures, the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from occamroute.evaluation.studies.base import Study
from occamroute.evaluation.studies.running import Record
from occamroute.reporting.frame import page

__all__ = ["study_page"]

TITLE = "The paper's tables and figures, made again"
INTRODUCTION = """<p>Each section sets what the paper <em>OCCAM: Towards Cost-Efficient and Accuracy-Aware
Classification Inference</em> found beside what is found here; our sentences are computed from the numbers in the
files. Nothing is chosen or tuned on the queries that a number is judged on; where a study shows several values of
a knob, all are shown. Comparisons of accuracy show the <em>best mixture</em>, which looks at no features and pays
for none (the paper has no such baseline), and the <em>oracle</em>, which knows every answer beforehand.</p>"""
NOT_REMADE = """<section><h2 id="not-remade">What is not remade, and what differs</h2><ul>
<li><b>CIFAR-100 and ImageNet-1K</b>: outputs of classifiers on these data sets are not at hand, and neither are
those of the 101 networks from PyTorch Hub. Made-up classifiers on real embeddings stand in for the latter.</li>
<li><b>Figures 2 and 5</b> are drawings: the pipeline, and two images of different classes. Distances between
classes are measured instead.</li>
<li><b>The classifiers are others</b> than the paper's, and so are their accuracies and costs (on CIFAR-10 and Tiny
ImageNet: small convolutional networks trained from scratch, measured GPU seconds). Findings can be compared in
kind, not digit by digit.</li>
<li><b>Duplicates</b> are judged on features and hidden layers, not on images.</li>
<li><b>The authors' code differs from their text</b>: it measures sigma on test labels (here: on held-out rows of
the profile); its sigma is the spread of the estimate's error, the text says of the estimator (both are shown
under “penalty”); its samples are disjoint slices of one shuffled set, not independent draws (both are shown under
“variance”); once features are paid, the extractor's own answer is free (kept here).</li>
<li><b>The lemma on variance</b> claims 1/√K; for K independent samples it is 1/K. Both curves are shown.</li>
<li><b>FrugalMCT</b> stands for its estimator, a random forest with scikit-learn's defaults, under the same
solver, as in the paper.{forest}</li>
</ul></section>"""


def study_page(
    studies: Sequence[Study], records: Mapping[str, Record], portfolios: Sequence[Mapping[str, Any]], folder: Path
) -> str:
    """The page of those studies that have a record; their charts are read from ``folder`` and put into it."""
    shown = [study for study in studies if study.name in records]
    links = "".join(f'<li><a href="#{study.name}">{escape(study.title)}</a></li>' for study in shown)
    sections = "".join(_section(study, records[study.name], folder) for study in shown)
    quick = any(record.stamp.get("quick") for record in records.values())
    notice = "<p><b>A quick look: few rows, few settings. Numbers are rough.</b></p>" if quick else ""
    studied = "".join(f"<li>{escape(_portfolio(one))}</li>" for one in portfolios)
    body = (
        f"<h1>{escape(TITLE)}</h1>{INTRODUCTION}{notice}<ul>{studied}</ul>"
        f'<nav aria-label="Contents"><ul>{links}<li><a href="#not-remade">What is not remade, and what differs</a></li>'
        f"</ul></nav>{sections}{NOT_REMADE.replace('{forest}', escape(_forest(portfolios)))}"
    )
    return page(TITLE, body, kind="studies")


def _portfolio(one: Mapping[str, Any]) -> str:
    return (
        f"{one['title']}: {one['classifiers']} classifiers, {one['labelled_rows']:,} labelled rows, {one['queries']:,} "
        f"queries to judge on; features of {one['extractor']} unless said otherwise."
    )


def _forest(portfolios: Sequence[Mapping[str, Any]]) -> str:
    return "".join(
        f" On {one['title']} it learns from {one['forest_rows']:,} of {one['labelled_rows']:,} rows, drawn at random, "
        "so "
        "that the run ends within minutes."
        for one in portfolios
        if one["forest_rows"] < one["labelled_rows"]
    )


def _section(study: Study, record: Record, folder: Path) -> str:
    ours = "".join(
        f"<dt>{escape(title)}</dt><dd>{escape(finding)}</dd>" for title, finding in record.findings.items()
    ) + "".join(
        f"<dt>{escape(title)}</dt><dd>Left out: {escape(reason)}.</dd>" for title, reason in record.left_out.items()
    )
    figures = "".join(
        f"<figure>{(folder / chart).read_text(encoding='utf-8')}<figcaption>{escape(chart)}</figcaption></figure>"
        for chart in record.charts
    )
    files = ", ".join(f'<a href="{escape(table)}">{escape(table)}</a>' for table in record.tables)
    return (
        f'<section id="{study.name}"><h2>{escape(study.title)}</h2><p>{escape(study.places)} of the paper.</p>'
        f"<dl><dt>The paper</dt><dd>{escape(study.paper)}</dd>{ours}</dl>{figures}"
        f"<p>Numbers: {files or 'none'}. {record.seconds:.0f} s.</p></section>"
    )
