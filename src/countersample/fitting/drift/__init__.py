"""What changed between two logs by more than is relevant."""

from countersample.fitting.drift.comparing import Drift, find_drift
from countersample.fitting.drift.page import write_drift_page
from countersample.fitting.drift.testing import Change

__all__ = ["Change", "Drift", "find_drift", "write_drift_page"]
