"""The commands, what they have in common, and how errors of usage are reported."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, CycloptsError, Group, Parameter, Token
from cyclopts.exceptions import CoercionError

from countersample._version import __version__
from countersample.cli import _job_log
from countersample.errors import CounterSampleError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cyclopts import Argument, ArgumentCollection

CONFIG = Path("countersample.toml")  # read if it is in the current folder
USAGE = 2  # the exit code of a command that is not understood
_TABLES = {"--columns", "--values"}  # options whose value is a table of names and values
_PERSONAL = {"--out", "-o", "--json", "--help", "-h", "--version"}  # of one call, not of a team


def _shown_default(value: Any) -> str | None:  # noqa: ANN401 (of any option)
    """Return a default for the help page, unless it is empty."""
    return None if value in (None, False, (), {}) else str(value)


app = App(
    name="countersample",
    help="Turn a biased click log into an unbiased ranker.",
    version=f"countersample {__version__}",
    help_flags=("--help", "-h"),
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=_shown_default),
    result_action="return_value",
)
app.meta.group_parameters = Group("Options of all commands", sort_key=9)
app.register_install_completion_command()
_FAMILIES = {
    "": "",
    "log": "Check, count and sample raw logs.",
    "data": "List, describe, convert and make labelled data.",
    "study": "Look after the studies that reproduce has run.",
}
# Family, name, function in this package, and the first line of its help: a command is imported when
# it is run.
_COMMANDS = (
    ("", "fit", "fit:fit", "Train a ranker from a raw log, and estimate its gain."),
    ("", "compare", "compare:compare", "Estimate the values of rankers, and compare them."),
    ("", "rank", "ranker:rank", "Score the items of a file."),
    ("", "export", "export:export", "Write a ranker for another system, and its model card."),
    ("", "propensity", "propensity:propensity", "Estimate position bias."),
    ("", "judgements", "judgements:judgements", "Estimate how relevant items are, and grade them."),
    ("", "train", "ranker:train", "Train a ranker on a click log."),
    ("", "evaluate", "ranker:evaluate", "Measure a ranker on labelled data."),
    ("", "simulate", "simulate:simulate", "Simulate users who click on rankings."),
    ("", "demo", "study:demo", "Compare the methods on simulated clicks."),
    ("", "reproduce", "study:reproduce", "Repeat the paper's studies, or run your own."),
    ("log", "check", "logs:check", "Validate and describe a log, or compare it with another."),
    ("log", "count", "logs:count", "Count a log by day."),
    ("log", "sample", "logs:sample", "Write all rows of some queries."),
    ("data", "list", "data:list_known", "List the known sets."),
    ("data", "info", "data:info", "Describe or verify a file, a folder or a known set."),
    ("data", "convert", "data:convert", "Convert labelled data."),
    ("data", "make", "data:make", "Make a synthetic set of labelled data."),
    ("study", "status", "study:status", "Report how far a study is."),
    ("study", "claims", "study:claims", "Test the claims of studies again."),
)
_homes = {name: App(name=name, help=text) if name else app for name, text in _FAMILIES.items()}
for _name, _home in _homes.items():
    if _name:
        app.command(_home)
for _family, _name, _function, _help in _COMMANDS:
    _homes[_family].command(f"countersample.cli.{_function}", name=_name, help=_help)


@app.meta.default
def run(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    log_format: Literal["text", "json"] | None = None,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
) -> int | None:
    """Run a command.

    Parameters
    ----------
    config
        A TOML file with options of the commands; countersample.toml in this folder by default.
    log_format
        Log what is done to standard error, as text or as one JSON object per line.
    log_level
        How much is logged; info by default.
    """
    _job_log.configure(log_format, log_level)
    if config is not None and not config.is_file():
        raise DataError(f"{config}: no such file, expected a file with options (--config)")
    path = config or (CONFIG if CONFIG.is_file() else None)
    app.config = () if path is None else (_Settings(path),)
    code: int | None = app(tokens, exit_on_error=False, print_error=False)
    return code


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; usage errors become one sentence."""
    app.config = ()
    try:
        code: Any = app.meta(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        ours = _our_error(error)
        if ours is not None:
            raise ours from error
        _job_log.tell(_sentence(error), level="error")
        return USAGE
    return code if isinstance(code, int) else 0


def _our_error(error: CycloptsError) -> CounterSampleError | None:
    """Return the error of this package that cyclopts wrapped, or the one of a wrong choice."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CounterSampleError):
            return cause
        cause = cause.__cause__
    if isinstance(error, CoercionError) and error.token is not None:
        choices = _choices(error.target_type)
        if choices:
            name = error.token.keyword or "the value"
            near = get_close_matches(error.token.value, choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return ParameterError(
                f"{name} is {error.token.value!r}, expected one of {', '.join(choices)}{hint}"
            )
    return None


def _choices(hint: Any) -> list[str]:  # noqa: ANN401 (a type)
    for part in (hint, *get_args(hint)):
        if get_origin(part) is Literal:
            return [str(each) for each in get_args(part)]
    return []


def _sentence(error: CycloptsError) -> str:
    """Return what cyclopts says as a sentence in this package's form."""
    error.verbose = False
    text = " ".join(str(error).split()).removesuffix(".")
    return f"{text[:1].lower()}{text[1:]}" if not text.startswith(("-", "[")) else text


class _Settings:
    """The options in a TOML file: for every command that has an option of that name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, _app: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Set the options that are not on the command line."""
        settings = self._read()
        known = {name for each in _leaves(app) for name in _option_names(each)}
        for key, value in settings.items():
            option = f"--{key.replace('_', '-')}"
            if option not in known:
                near = get_close_matches(option, known, n=1)
                hint = f", did you mean {near[0].removeprefix('--')!r}?" if near else ""
                raise DataError(
                    f"{self.path}: no command has an option {key!r}{hint}: see countersample "
                    "COMMAND --help for the options"
                )
            if isinstance(value, dict) and option not in _TABLES:
                raise DataError(
                    f"{self.path}: {key} is a table, expected the names of options without a table "
                    "around them, such as positions_from = 1"
                )
            for argument in arguments:
                if (
                    option in _written_names(argument)
                    and not argument.tokens
                    and not argument.children
                ):
                    self._set(argument, option, value)

    def _read(self) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read as TOML: {error}") from error

    def _set(self, argument: Argument, option: str, value: Any) -> None:  # noqa: ANN401 (TOML)
        source = str(self.path)
        if isinstance(value, dict):
            value = ",".join(f"{name}={each}" for name, each in value.items())
        elif isinstance(value, list):
            value = ",".join(map(str, value))
        if isinstance(value, bool):
            argument.append(Token(keyword=option, implicit_value=value, source=source))
        else:
            argument.append(Token(keyword=option, value=str(value), source=source))


def _leaves(family: App) -> Iterator[App]:
    """Go through all commands."""
    for name in family:
        if not name.startswith("-"):
            command = family[name]
            if command.default_command is None:
                yield from _leaves(command)
            else:
                yield command


def _option_names(command: App) -> set[str]:
    arguments = command.assemble_argument_collection()
    return {name for each in arguments for name in _written_names(each)} - _PERSONAL


def _written_names(argument: Argument) -> set[str]:
    """Return the long names of an option in a file: not of hidden fields, nor ``--no-…``."""
    if not argument.parse:
        return set()
    return {each for each in argument.names if each.startswith("--")} - set(argument.negatives)


def command_line() -> str:
    """Return the command as it was given, for reports."""
    import shlex

    return shlex.join(["countersample", *sys.argv[1:]])
