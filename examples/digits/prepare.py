"""Writes five fitted models (.skops), train.npz and test.npz: the handwritten digits that come with scikit-learn.

A third of the digits is for fitting the models, a third for the profile and a third for the test. Each digit comes
three times, under noise of another strength: without noise all models are right nearly always. Copies of one digit
share a ``group``: they are never on both sides when something is held out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import skops.io
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

MODELS = {
    "tree": DecisionTreeClassifier(max_depth=8, random_state=0),
    "bayes": GaussianNB(),
    "linear": LogisticRegression(C=0.1, max_iter=500),
    "forest": RandomForestClassifier(60, max_leaf_nodes=120, random_state=0),
    "svm": SVC(C=5.0, gamma=0.1),
}
COPIES = 3
MOST_NOISE = 0.5


def main() -> None:
    """Fit the models and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder
    images, labels = load_digits(return_X_y=True)
    draw = np.random.default_rng(0)
    for name, digits in zip(("fit", "train", "test"), np.array_split(draw.permutation(len(images)), 3), strict=True):
        rows = np.repeat(digits, COPIES)
        strength = draw.uniform(0.0, MOST_NOISE, (rows.size, 1))
        noisy = np.clip(images[rows] / 16 + strength * draw.normal(size=(rows.size, images.shape[1])), 0.0, 1.0)
        if name == "fit":
            for model, estimator in MODELS.items():
                skops.io.dump(estimator.fit(noisy, labels[rows]), folder / f"{model}.skops")
                print(f"{model}.skops")
        else:
            ids = [f"{name}-{number}" for number in range(rows.size)]
            np.savez(folder / f"{name}.npz", X=noisy, y=labels[rows], id=ids, group=rows)
            print(f"{rows.size} digits in {name}.npz")


if __name__ == "__main__":
    main()
