"""From a raw log to a ranker, its gain over the logging policy, its verdict and its report.

====================  ===========================================================================
`fit`                 train a ranker from a log and evaluate it; the evaluation of `train`
`models`              the kinds of ranker that the options can name
`weighted_log`        a log that is checked, weighted by propensities and joined to features
`propensity_source`   which propensities weight the clicks, and how they are estimated
`gain`                what is held out, and the gain that is estimated from it
`propensity_draws`    draws of queries or sessions with propensities estimated again
`leakage`             features that were computed from the evaluation clicks
`results`             the results of `fit` and `train`, with their verdicts
`log_comparison`      existing rankers compared by a log
`judgements`          relevance grades from clicks, and files for other tools
`drift`               what changed between two logs
`page`                the reports as HTML, from ``templates/*.html``
`summaries`           the results as text for a terminal, from ``templates/*.txt``
====================  ===========================================================================
"""

from countersample.fitting.drift import Change, Drift, find_drift
from countersample.fitting.fit import evaluate_training, fit_from_impressions
from countersample.fitting.judgements import Judgements, judgements_from_impressions
from countersample.fitting.leakage import Leak, find_leaks
from countersample.fitting.log_comparison import LogComparison, compare_from_impressions
from countersample.fitting.page import write_drift_page, write_page
from countersample.fitting.results import Fit, TrainedRanker

__all__ = [
    "Change",
    "Drift",
    "Fit",
    "Judgements",
    "Leak",
    "LogComparison",
    "TrainedRanker",
    "compare_from_impressions",
    "evaluate_training",
    "find_drift",
    "find_leaks",
    "fit_from_impressions",
    "judgements_from_impressions",
    "write_drift_page",
    "write_page",
]
