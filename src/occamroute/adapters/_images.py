"""Images as a model wants them: resized, cropped, normalised."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from occamroute._arrays import FloatArray
from occamroute._optional import require
from occamroute.errors import InvalidInputError

__all__ = ["Interpolation", "Preparation", "opened", "prepared"]

Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Preparation:
    """The shorter side becomes ``resize``, the middle ``image_size`` square stays, each channel is normalised."""

    image_size: int = 224
    resize: int = 256
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    interpolation: Interpolation = "bilinear"

    def changed(
        self,
        *,
        image_size: int | None = None,
        resize: int | None = None,
        mean: Iterable[float] | None = None,
        std: Iterable[float] | None = None,
        interpolation: Interpolation | None = None,
    ) -> Preparation:
        """The same with what is given; a new size keeps the share that is cropped."""
        size = self.image_size if image_size is None else image_size
        made = replace(
            self,
            image_size=size,
            resize=resize if resize is not None else round(self.resize * size / self.image_size),
            mean=self.mean if mean is None else tuple(float(value) for value in mean),
            std=self.std if std is None else tuple(float(value) for value in std),
            interpolation=interpolation or self.interpolation,
        )
        if not 0 < made.image_size <= made.resize:
            raise InvalidInputError(f"image_size must be from 1 to resize, got {made.image_size} and {made.resize}.")
        if len(made.mean) != 3 or len(made.std) != 3 or min(made.std) <= 0.0:
            raise InvalidInputError(f"mean and std must be 3 numbers, std > 0, got {made.mean} and {made.std}.")
        return made

    def pixels(self, image: Any) -> FloatArray:
        """A PIL image in RGB as (3, image_size, image_size)."""
        width, height = image.size
        short = min(width, height)
        size = (max(1, int(self.resize * width / short)), max(1, int(self.resize * height / short)))
        image = image.resize(size, getattr(_pillow().Resampling, self.interpolation.upper()))
        left, top = round((size[0] - self.image_size) / 2), round((size[1] - self.image_size) / 2)
        image = image.crop((left, top, left + self.image_size, top + self.image_size))
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        values = (np.asarray(image, np.float32) / np.float32(255) - mean) / std
        return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


def prepared(queries: Any, how: Preparation) -> tuple[FloatArray, dict[int, str]]:
    """Arrays (n, …) for a model, and by row why a query could not be read (such rows are zeros).

    Arrays of numbers go through as float32. Paths, PIL images, the bytes of image files and uint8 arrays (H, W) or
    (H, W, 3) are images and get ``how``.
    """
    if isinstance(queries, np.ndarray) and not len(queries):
        return _numbers(queries), {}
    if (
        len(queries)
        and isinstance(queries[0], np.ndarray | list | tuple | float | int | np.number)
        and not _is_image(queries[0])
    ):
        return _numbers(queries), {}
    images, failures = opened(queries)
    blank = np.zeros((3, how.image_size, how.image_size), np.float32)
    rows = [blank if row in failures else how.pixels(image) for row, image in enumerate(images)]
    return np.stack(rows) if rows else blank[None][:0], failures


def opened(queries: Any) -> tuple[list[Any], dict[int, str]]:
    """PIL images in RGB, and by row why one could not be read (such rows are None)."""
    images: list[Any] = []
    failures: dict[int, str] = {}
    for row, query in enumerate(queries):
        try:
            images.append(_opened(query))
        except (OSError, ValueError, SyntaxError, TypeError, AttributeError) as error:  # what Pillow says of bad files
            failures[row] = f"no readable image: {' '.join(str(error).split()) or type(error).__name__}"
            images.append(None)
    return images, failures


def _opened(image: Any) -> Any:
    if isinstance(image, np.ndarray):
        return _pillow().fromarray(image).convert("RGB")
    if isinstance(image, str | Path | bytes):
        with _pillow().open(io.BytesIO(image) if isinstance(image, bytes) else image) as file:
            return file.convert("RGB")
    return image.convert("RGB")


def _pillow() -> Any:
    return require("PIL.Image", extra="torch", what="reading images")


def _is_image(query: Any) -> bool:
    if not isinstance(query, np.ndarray) or query.dtype != np.uint8:
        return False
    return query.ndim == 2 or (query.ndim == 3 and query.shape[2] == 3)


def _numbers(queries: Any) -> FloatArray:
    try:
        return np.require(queries, np.float32, ["C", "W"])  # what torch takes without a complaint
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"queries must be numbers of one shape, images or paths of images, got {type(queries[0]).__name__}."
        ) from None
