"""Trains linear heads on frozen image models for a folder of images, and writes the pool that they make."""

from __future__ import annotations

import argparse
from pathlib import Path

from occamroute.recipes.image_pools import PAPER, train_pool


def main() -> None:
    """Read the options, train, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="a folder with one subfolder of images a class")
    parser.add_argument("--out", type=Path, default=Path("pool"), help="where heads, features and occamroute.toml go")
    parser.add_argument("--models", nargs="+", default=list(PAPER), help="torchvision:NAME or timm:NAME")
    parser.add_argument(
        "--weights", type=Path, help="a folder with NAME.safetensors or NAME.pth; else the default ones"
    )
    parser.add_argument("--per-hour", type=float, default=3.06, help="what an hour of the machine costs")
    parser.add_argument("--image-size", type=int, help="by default what each model was trained with")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--batch-size", type=int, default=64)
    given = parser.parse_args()
    heads = train_pool(
        given.data,
        given.out,
        models=given.models,
        weights=files(given.weights, given.models),
        per_hour=given.per_hour,
        image_size=given.image_size,
        device=given.device,
        batch_size=given.batch_size,
        progress=lambda name, done, of: print(f"\r{name}: {done:,} of {of:,} images", end="", flush=True),
    )
    print()
    for name, head in heads.items():
        print(f"{name:<14} {100 * head.accuracy:6.2f} % of the held-out images, {head.epochs} epochs")
    print(f"The pool is in {given.out / 'occamroute.toml'}.")


def files(folder: Path | None, models: list[str]) -> dict[str, Path]:
    """The weights in a folder, by model."""
    found = {}
    for model in models if folder is not None else ():
        for file in sorted(Path(folder or ".").glob(f"{model.rpartition(':')[2]}.*")):
            found[model] = file
    return found


if __name__ == "__main__":
    main()
