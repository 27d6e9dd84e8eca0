"""Evaluation of policies in simulation: success rates with intervals, on seeds that training never saw."""

from typing import TYPE_CHECKING

from engram.core.lazy import lazy

if TYPE_CHECKING:
    from engram.validation.evaluation import Report, evaluate, evaluate_checkpoint, evaluate_experts

_MODULES = dict.fromkeys(
    ("Report", "evaluate", "evaluate_checkpoint", "evaluate_experts"), "engram.validation.evaluation"
)
__all__ = ["Report", "evaluate", "evaluate_checkpoint", "evaluate_experts"]
__getattr__, __dir__ = lazy(__name__, _MODULES)
