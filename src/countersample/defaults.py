"""The defaults that many signatures share: change one here, and it changes everywhere."""

from __future__ import annotations

CONFIDENCE = 0.95  # the level of every interval, and of `safety`
HOLDOUT = 0.2  # the share of the queries, or of the rows of a log, that is held out
METRIC = "dcg@10"  # what is optimized and estimated from clicks
TIES = "file"  # items with equal scores are ranked in the order of the data
