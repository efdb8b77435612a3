"""Models of sentence-transformers as extractors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from occamroute._arrays import FloatArray
from occamroute.adapters._hugging_face import from_here, library
from occamroute.adapters._torch_models import torch_device
from occamroute.pool import Cost

__all__ = ["SentenceExtractor"]


class SentenceExtractor:
    """A model of sentence-transformers as an extractor of features from texts.

    ``model`` is a folder, or the name of a model in the cache of Hugging Face. With ``normalize`` every feature
    vector has length 1. ``prompt`` stands before each text, for models that were trained with one.
    """

    def __init__(
        self,
        name: str,
        cost: Cost,
        *,
        model: str,
        normalize: bool = False,
        prompt: str | None = None,
        device: str = "cpu",
        batch_size: int = 32,
        folder: Path | None = None,
    ) -> None:
        self.name, self.cost, self.batch_size = name, cost, batch_size
        what = "an extractor of kind sentence_transformers"
        made = library("sentence_transformers", extra="sentence-transformers", what=what).SentenceTransformer
        self._model = from_here(made, model, folder, device=str(torch_device(device)))
        self._options = {"normalize_embeddings": normalize, "prompt": prompt}

    def extract(self, queries: Any, /) -> FloatArray:
        """Features (n, d)."""
        texts = [str(query) for query in queries]
        made = self._model.encode(texts, batch_size=self.batch_size, show_progress_bar=False, **self._options)
        return np.asarray(made, np.float32).reshape(len(texts), -1)
