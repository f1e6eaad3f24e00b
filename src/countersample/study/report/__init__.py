"""`report.html`: the study as one page that needs no network."""

from countersample.study.report.model import (
    Figure,
    Link,
    LogDiagnosis,
    Report,
    Section,
    SettingLine,
)
from countersample.study.report.page import render_report, write_report
from countersample.study.report.summary import summarize

__all__ = [
    "Figure",
    "Link",
    "LogDiagnosis",
    "Report",
    "Section",
    "SettingLine",
    "render_report",
    "summarize",
    "write_report",
]
