"""Deep learning in PyTorch with privacy for records, elements or users.

:func:`train` needs a network and the loss of one record, and :class:`Trainer` fine-tunes Hugging Face
models; both call the loss with one record at a time. Use :class:`PrivacyEngine` only for a custom
training loop, which must keep records separate.

Requires PyTorch: ``pip install 'dpgrain[torch]'``. ``Trainer`` and Hugging Face models require
``pip install 'dpgrain[transformers]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpgrain._lazy_import import lazy_package

if TYPE_CHECKING:
    from dpgrain.torch import losses
    from dpgrain.torch.adaptive_clipping import AdaptiveNorm
    from dpgrain.torch.linear_maps import through_linear_maps
    from dpgrain.torch.loader import PrivateLoader
    from dpgrain.torch.losses import record_losses
    from dpgrain.torch.optimizer import PrivateOptimizer
    from dpgrain.torch.privacy_arguments import PrivacyArguments
    from dpgrain.torch.privacy_engine import PrivacyEngine
    from dpgrain.torch.trainer import Trainer
    from dpgrain.torch.training import train
    from dpgrain.torch.training_result import Training, TrainingHistory

__all__ = [
    "AdaptiveNorm",
    "PrivacyArguments",
    "PrivacyEngine",
    "PrivateLoader",
    "PrivateOptimizer",
    "Trainer",
    "Training",
    "TrainingHistory",
    "losses",
    "record_losses",
    "through_linear_maps",
    "train",
]

lazy_package(
    __name__,
    {
        "dpgrain.torch": ("losses",),
        "dpgrain.torch.adaptive_clipping": ("AdaptiveNorm",),
        "dpgrain.torch.privacy_engine": ("PrivacyEngine",),
        "dpgrain.torch.loader": ("PrivateLoader",),
        "dpgrain.torch.losses": ("record_losses",),
        "dpgrain.torch.linear_maps": ("through_linear_maps",),
        "dpgrain.torch.optimizer": ("PrivateOptimizer",),
        "dpgrain.torch.privacy_arguments": ("PrivacyArguments",),
        "dpgrain.torch.training_result": ("Training", "TrainingHistory"),
        "dpgrain.torch.trainer": ("Trainer",),
        "dpgrain.torch.training": ("train",),
    },
)
