"""How far to follow which path: start, temper and steps, chosen from clicks alone.

===========  ==================================================================
`choice`     `choose_contender`, and its result `PathChoice`
`paths`      training paths: checkpoints on held-out queries, and the mean path
`safety`     the rule by which held-out clicks replace your current ranker
===========  ==================================================================
"""

from countersample.tuning.choice import Candidate, Contender, PathChoice, choose_contender
from countersample.tuning.paths import TEMPERS, follow_paths, number_of_steps

__all__ = [
    "TEMPERS",
    "Candidate",
    "Contender",
    "PathChoice",
    "choose_contender",
    "follow_paths",
    "number_of_steps",
]
