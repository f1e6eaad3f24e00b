"""From a raw log to a ranker: propensities, tuning, training, and the gain to expect."""

from countersample.fitting.page import write_page
from countersample.fitting.pipeline import fit_from_impressions
from countersample.fitting.results import Fit

__all__ = ["Fit", "fit_from_impressions", "write_page"]
