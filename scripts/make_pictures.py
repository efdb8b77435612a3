"""Make the pictures in docs/ from the data set that ships with the package.

python scripts/make_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from occamroute.cli.demo import EXTRACTORS, FRACTIONS, TITLE
from occamroute.datasets import load_dataset
from occamroute.evaluation.budget_sweep import sweep
from occamroute.reporting.sweep_page import sweep_chart

FOLDER = Path(__file__).parent.parent / "docs"


def main() -> None:
    """The frontier that the README opens with: the demo's budgets and more between them."""
    profile, test = load_dataset("cifar10", extractor=EXTRACTORS)
    more = np.geomspace(0.04, 1.0, 15).round(3).tolist()
    result = sweep(profile, test, fractions=sorted({*FRACTIONS, *more}))
    (FOLDER / "frontier.svg").write_text(sweep_chart(result, TITLE), encoding="utf-8")


if __name__ == "__main__":
    main()
