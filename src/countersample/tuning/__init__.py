"""Learning rate, steps and clipping, chosen from clicks alone."""

from countersample.tuning.choosing import choose_clip, clips_to_try, number_of_steps, tune
from countersample.tuning.results import ClipChoice, Trial, TuningResult

__all__ = [
    "ClipChoice",
    "Trial",
    "TuningResult",
    "choose_clip",
    "clips_to_try",
    "number_of_steps",
    "tune",
]
