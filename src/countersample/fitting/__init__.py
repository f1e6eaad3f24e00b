"""From a raw log to a ranker: propensities, tuning, training, and the gain to expect."""

from countersample.fitting.comparing import JudgedCandidates, compare_from_impressions
from countersample.fitting.drift import Change, Drift, find_drift, write_drift_page
from countersample.fitting.judgements import Judgements, judgements_from_impressions
from countersample.fitting.leaks import Leak, find_leaks
from countersample.fitting.page import write_page
from countersample.fitting.pipeline import fit_from_impressions
from countersample.fitting.results import Fit
from countersample.fitting.training import JudgedTraining, judge_training

__all__ = [
    "Change",
    "Drift",
    "Fit",
    "JudgedCandidates",
    "JudgedTraining",
    "Judgements",
    "Leak",
    "compare_from_impressions",
    "find_drift",
    "find_leaks",
    "fit_from_impressions",
    "judge_training",
    "judgements_from_impressions",
    "write_drift_page",
    "write_page",
]
