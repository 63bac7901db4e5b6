"""Distillation: a model that samples in a few steps, trained from one that needs many."""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout.distillation.config import DistillConfig as DistillConfig
    from blackout.distillation.loop import Distiller as Distiller
    from blackout.distillation.run import distill as distill

__getattr__, __all__ = exports(__name__)
