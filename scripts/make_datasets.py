"""Make the data sets that ship with the package from the raw outputs of the classifiers.

    python scripts/make_datasets.py --data DIR

DIR holds ``cifar10.npz``: labels, logits and measured seconds of seven networks on CIFAR-10.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from occamroute.storage import Parts, write

FOLDER = Path(__file__).parent.parent / "src" / "occamroute" / "datasets"


def make_cifar10(source: Path) -> Path:
    """Logits of all classifiers as they were recorded (float16), labels, costs: one row an image."""
    with np.load(source, allow_pickle=False) as raw:
        names = [str(name) for name in raw["names"]]
        logits = np.concatenate([raw["logits_val"], raw["logits_test"]])
        labels = np.concatenate([raw["y_val"], raw["y_test"]])
        split = np.repeat(["val", "test"], [len(raw["y_val"]), len(raw["y_test"])])
        about = {
            "names": names,
            "costs": raw["seconds_batch1024"].tolist(),
            "cost_unit": "GPU seconds per image at batch size 1024",
            "classes": [str(name) for name in raw["classes"]],
        }
    columns = {"split": split, "label": labels.astype(np.int64)}
    columns |= {f"logits:{name}": logits[:, column] for column, name in enumerate(names)}
    target = FOLDER / "cifar10.parquet"
    write(Parts("logits", columns, about), target)
    return target


def main() -> None:
    """Write every data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with the raw outputs")
    make_cifar10(parser.parse_args().data / "cifar10.npz")


if __name__ == "__main__":
    main()
