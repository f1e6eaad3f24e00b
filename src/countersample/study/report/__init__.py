"""`report.html`: the study as one page that needs no network."""
