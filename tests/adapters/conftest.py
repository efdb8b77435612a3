"""What adapters' tests share: torch on one thread, no network, and real photographs."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from occamroute.adapters._torch_models import require_torchvision

# Before any library of Hugging Face is imported: a test that asks its hub is wrong.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
# Small models are slower on two threads than on one.
torch.set_num_threads(1)
# Before a test module imports it: here it may be without its compiled operators.
require_torchvision()


@pytest.fixture(scope="session")
def photographs() -> list[Path]:
    """A temple and a flower."""
    folder = Path(str(files("sklearn.datasets"))) / "images"
    return [folder / "china.jpg", folder / "flower.jpg"]
