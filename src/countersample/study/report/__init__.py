"""`report.html`: the study as one page that needs no network."""

from countersample.study.report.model import (
    Figure,
    Link,
    LogDiagnosis,
    ProtocolLine,
    Report,
    Section,
)
from countersample.study.report.page import render_report, write_report
from countersample.study.report.summary import summarize

__all__ = [
    "Figure",
    "Link",
    "LogDiagnosis",
    "ProtocolLine",
    "Report",
    "Section",
    "render_report",
    "summarize",
    "write_report",
]
