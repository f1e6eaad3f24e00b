"""From a raw log to a ranker: propensities, tuning, training, and the gain to expect."""

from countersample.fitting.leaks import Leak, find_leaks
from countersample.fitting.page import write_page
from countersample.fitting.pipeline import fit_from_impressions
from countersample.fitting.results import Fit

__all__ = ["Fit", "Leak", "find_leaks", "fit_from_impressions", "write_page"]
