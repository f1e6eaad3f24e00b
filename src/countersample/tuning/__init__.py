"""How far to follow which path: start, temper and steps, chosen from clicks alone."""

from countersample.tuning.choosing import Contender, choose_by, choose_path
from countersample.tuning.paths import TEMPERS, follow_paths, number_of_steps
from countersample.tuning.results import Candidate, PathChoice

__all__ = [
    "TEMPERS",
    "Candidate",
    "Contender",
    "PathChoice",
    "choose_by",
    "choose_path",
    "follow_paths",
    "number_of_steps",
]
