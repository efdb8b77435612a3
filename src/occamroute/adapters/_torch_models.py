"""torch modules by name, with weights from files or from the library's own cache; nothing is downloaded."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import Any

from occamroute._optional import require
from occamroute.adapters._files import model_file
from occamroute.adapters._images import Preparation
from occamroute.adapters.callable import found
from occamroute.errors import InvalidInputError, StorageError

__all__ = ["built", "last_linear", "require_torch", "require_torchvision", "torch_device", "with_head"]

WHAT = "a classifier of kind torch"
SUFFIXES = (".pt", ".pth", ".bin", ".safetensors")
ADVICE = "save the weights with safetensors.torch.save_file or torch.save(model.state_dict(), …)"
DEFAULT = "default"


def require_torch() -> Any:
    """The module torch."""
    return require("torch", extra="torch", what=WHAT)


def require_torchvision() -> Any:
    """torchvision, even without its compiled operators: its classification models use none of them."""
    torch = require_torch()
    try:
        return require("torchvision", extra="torch", what="a model of torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    # A torchvision whose operators were built for another torch fails when it describes an operator that is not
    # there. Declared, it may be described, and only calling it would fail.
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for half_imported in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    return require("torchvision", extra="torch", what="a model of torchvision")


def built(model: str, weights: Path | str | None, folder: Path | None, *, backbone: bool) -> tuple[Any, Preparation]:
    """The module that a name means, with its weights, and how it wants its images.

    With ``backbone``, weights may lack its last layer or have another one: that is about to be replaced.
    """
    library, _, name = model.partition(":")
    if library in ("torchvision", "timm") and weights is None:
        raise InvalidInputError(f"model {model!r} needs weights: a .safetensors, .pt or .pth file, or 'default'.")
    file = None
    if weights is not None and Path(weights).name != DEFAULT:
        file = model_file(Path(folder or ".") / weights, SUFFIXES, advice=ADVICE)
    elif weights is not None and library not in ("torchvision", "timm"):
        raise InvalidInputError(f"model {model!r} has no default weights: give a file, or none.")
    if library == "torchvision":
        module, how, cached = _torchvision(name)
    elif library == "timm":
        module, how, cached = _timm(name)
    else:
        module, how, cached = found(model, folder)(), Preparation(), None
    if weights is not None:
        _load(module, file or _in_cache(model, cached), backbone=backbone)
    return module, how


def _torchvision(name: str) -> tuple[Any, Preparation, Path | None]:
    models = require_torchvision().models
    if name not in models.list_models(module=models):
        raise InvalidInputError(
            f"torchvision has no classification model {name!r}: see torchvision.models.list_models()."
        )
    default = models.get_model_weights(name).DEFAULT
    how = default.transforms()
    made = Preparation(
        how.crop_size[0], how.resize_size[0], tuple(how.mean), tuple(how.std), _interpolation(how.interpolation.value)
    )
    cache = Path(require_torch().hub.get_dir()) / "checkpoints" / PurePosixPath(default.url).name
    return models.get_model(name, weights=None), made, cache


def _timm(name: str) -> tuple[Any, Preparation, Path | None]:
    require_torchvision()
    timm = require("timm", extra="timm", what="a model of timm")
    if not timm.is_model(name):
        raise InvalidInputError(f"timm has no model {name!r}: see timm.list_models().")
    module = timm.create_model(name, pretrained=False)
    about = module.pretrained_cfg
    size = int(about["input_size"][-1])
    made = Preparation(
        size,
        max(size, int(size / (about.get("crop_pct") or 1.0))),
        tuple(about["mean"]),
        tuple(about["std"]),
        _interpolation(about.get("interpolation")),
    )
    hub = require("huggingface_hub", extra="timm", what="a model of timm")
    kept = hub.try_to_load_from_cache(about.get("hf_hub_id") or "none/none", "model.safetensors")
    return module, made, Path(kept) if isinstance(kept, str) else None


def _interpolation(name: str | None) -> Any:
    return name if name in ("bilinear", "bicubic") else "bilinear"


def _in_cache(model: str, path: Path | None) -> Path:
    if path is not None and path.is_file():
        return path
    where = "in the cache of Hugging Face" if path is None else f"at {path}"
    raise InvalidInputError(
        f"the default weights of {model!r} are not {where}, and occamroute downloads nothing: "
        "fetch them once with the library itself, or give a file as weights."
    )


def _load(module: Any, path: Path, *, backbone: bool) -> None:
    state = _state(path)
    if backbone:
        last, linear = last_linear(module)
        state = {key: value for key, value in state.items() if key.rpartition(".")[0] != last}
        state |= {f"{last}.{key}": value for key, value in linear.state_dict().items()}
    else:
        _fit_outputs(module, state)
    try:
        missing, unknown = module.load_state_dict(state, strict=False)
    except RuntimeError as error:  # shapes
        detail = str(error).splitlines()[-1].strip().rstrip(".")
        raise InvalidInputError(f"the weights in {path} do not fit the model: {detail}.") from error
    if missing or unknown:
        shown = ", ".join([*missing, *unknown][:3])
        counts = f"{len(missing)} are missing and {len(unknown)} unknown"
        raise InvalidInputError(f"the weights in {path} do not fit the model: {counts} ({shown}, …).")


def _fit_outputs(module: Any, state: dict[str, Any]) -> None:
    """Give the module's last linear layer as many outputs as the weights have."""
    linear = require_torch().nn.Linear
    layers = [(name, part) for name, part in module.named_modules() if name and isinstance(part, linear)]
    if not layers:
        return
    name, old = layers[-1]
    weight = state.get(f"{name}.weight")
    if weight is not None and weight.ndim == 2 and weight.shape != old.weight.shape:
        module.set_submodule(name, linear(weight.shape[1], weight.shape[0], bias=f"{name}.bias" in state))


def _state(path: Path) -> dict[str, Any]:
    torch = require_torch()
    try:
        if path.suffix == ".safetensors":
            return dict(require("safetensors.torch", extra="torch", what=WHAT).load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise whatever their parsers do
        if type(error).__name__ == "UnpicklingError":
            raise InvalidInputError(
                f"{path} holds more than weights (a whole module, say), and reading that can run any code: {ADVICE}."
            ) from None
        raise StorageError(path, f"it holds no weights ({type(error).__name__})") from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise StorageError(path, "it holds no state dict, a mapping from names to tensors")
    return {key.removeprefix("module."): value for key, value in state.items()}


def last_linear(module: Any) -> tuple[str, Any]:
    """The last linear layer and its name in the module."""
    linear = require_torch().nn.Linear
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, linear)]
    if not layers:
        raise InvalidInputError(f"{type(module).__name__} has no linear layer to take features from or to replace.")
    return str(layers[-1][0]), layers[-1][1]


def with_head(module: Any, path: Path) -> Any:
    """The module with its last linear layer replaced by the one in a .safetensors file ("weight" and "bias")."""
    torch = require_torch()
    state = _state(model_file(path, (".safetensors",), advice=ADVICE))
    name, old = last_linear(module)
    weight = state.get("weight")
    if weight is None or weight.ndim != 2 or set(state) - {"weight", "bias"}:
        raise StorageError(path, "a head holds the tensors weight (classes, d) and bias (classes,)")
    if weight.shape[1] != old.in_features:
        raise InvalidInputError(
            f"the head in {path} takes {weight.shape[1]} features, but the backbone gives {old.in_features}."
        )
    new = torch.nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in state)
    new.load_state_dict(state)
    if not name:
        return new
    module.set_submodule(name, new)
    return module


def torch_device(name: str) -> Any:
    """The device that a name means: "cpu", "cuda", or "auto" for the better one that is there."""
    torch = require_torch()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(f"device must be one that torch has here, 'cpu' or 'auto', got {name!r}.") from error
    return device
