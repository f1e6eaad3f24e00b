"""The commands and what they have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from countersample._params import choice
from countersample._version import __version__
from countersample.cli import (
    _job_log,
    clicks,
    data,
    demo,
    export,
    fit,
    judgements,
    judging,
    logs,
    propensity,
    ranker,
    sampling,
    study,
)

app = typer.Typer(
    name="countersample",
    help="Turn a biased click log into an unbiased ranker.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command()(demo.demo)
app.command()(fit.fit)
app.command()(judging.estimate)
app.command()(judging.compare)
app.add_typer(logs.app, name="log")
logs.app.command()(sampling.sample)
app.command()(propensity.propensity)
app.command()(judgements.judgements)
app.command()(study.reproduce)
app.add_typer(study.app, name="study")
app.command()(clicks.simulate)
app.command()(clicks.inspect)
app.command()(ranker.train)
app.command()(ranker.evaluate)
app.command()(ranker.rank)
app.command()(export.export)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"countersample {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option(help="Log what is done to standard error: text, or json, an object a line."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="How much of it: debug, info (the default), warning, error.")
    ] = None,
) -> None:
    for option, value, known in (
        ("--log-format", log_format, _job_log.FORMATS),
        ("--log-level", log_level, _job_log.LEVELS),
    ):
        if value is not None:
            choice(option, value, known)
    _job_log.configure(log_format, log_level)
