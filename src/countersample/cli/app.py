"""The list of commands, the options that all of them have, and errors of usage.

`_COMMANDS` names every command with its function. A ``countersample.toml`` in the current folder,
or the file of ``--config``, supplies options to every command that has them.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter, Token
from cyclopts.exceptions import CoercionError

from countersample._version import __version__
from countersample.cli import console
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.options import choices_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Argument, ArgumentCollection

CONFIG = Path("countersample.toml")  # read if it is in the current folder
USAGE = 2  # the exit code of a command that is not understood
_TABLES = {"--columns", "--values"}  # options whose value is a table of names and values
_PERSONAL = {"--out", "-o", "--json", "--help", "-h", "--version"}  # of one call, not of a team


def _format_default(value: Any) -> str | None:  # noqa: ANN401 (of any option)
    """Return a default for the help page, unless it is empty."""
    return None if value in (None, False, (), {}) else str(value)


app = App(
    name="countersample",
    help="Turn a biased click log into an unbiased ranker.",
    version=f"countersample {__version__}",
    help_flags=("--help", "-h"),
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=_format_default),
    result_action="return_value",
)
app.meta.group_parameters = Group("Options of all commands", sort_key=10)
app.register_install_completion_command()
_FAMILIES = {
    "": "",
    "log": "Check, count and sample raw logs.",
    "data": "List, describe, convert and make labelled data.",
    "study": "Look after the studies that reproduce has run.",
}
# Family, name, function in this package, and the first line of its help. A command is imported when
# it is run.
_COMMANDS = (
    ("", "fit", "fit:fit", "Train a ranker from a raw log, and estimate its gain."),
    ("", "compare", "fit:compare", "Estimate the values of rankers, and compare them."),
    ("", "rank", "rankers:rank", "Score the items of a file."),
    ("", "export", "rankers:export", "Write a ranker for another system, and its model card."),
    ("", "propensity", "logs:propensity", "Estimate position bias."),
    ("", "judgements", "logs:judgements", "Estimate how relevant items are, and grade them."),
    ("", "train", "rankers:train", "Train a ranker on a click log."),
    ("", "evaluate", "rankers:evaluate", "Measure a ranker on labelled data."),
    ("", "simulate", "data:simulate", "Simulate users who click on rankings."),
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
    _homes[_family].command(
        f"countersample.cli.{_function}",
        name=_name,
        help=_help,
        group_parameters=Group("Options", sort_key=9),
    )


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
    console.configure_log(log_format, log_level)
    if config is not None and not config.is_file():
        raise DataError(f"{config}: no such file, expected a file with options (--config)")
    path = config or (CONFIG if CONFIG.is_file() else None)
    app.config = () if path is None else (_ConfigFile(path),)
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
        console.report(_sentence(error), level="error")
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
        choices = list(map(str, choices_of(error.target_type)))
        if choices:
            name, value = error.token.keyword or "the value", error.token.value
            near = get_close_matches(value, choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return ParameterError(
                f"{name} is {value!r}, expected one of {', '.join(choices)}{hint}"
            )
    return None


def _sentence(error: CycloptsError) -> str:
    """Return cyclopts' message as a sentence in this package's form."""
    error.verbose = False
    text = " ".join(str(error).split()).removesuffix(".")
    return f"{text[:1].lower()}{text[1:]}" if not text.startswith(("-", "[")) else text


class _ConfigFile:
    """The options in a TOML file, for every command that has an option of that name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, _app: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Set the options that are not on the command line."""
        commands = (_homes[family][name] for family, name, *_ in _COMMANDS)
        names = {name for each in commands for name in _option_names(each)}
        for key, value in self._read().items():
            option = f"--{key.replace('_', '-')}"
            if option not in names:
                near = get_close_matches(option, names, n=1)
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
                is_set = argument.tokens or argument.children
                if option in _long_names(argument) and not is_set:
                    argument.append(self._token(option, value))

    def _read(self) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read as TOML: {error}") from error

    def _token(self, option: str, value: Any) -> Token:  # noqa: ANN401 (any value of TOML)
        """Return a value as it would be written on the command line."""
        source = str(self.path)
        if isinstance(value, bool):
            return Token(keyword=option, implicit_value=value, source=source)
        if isinstance(value, dict):
            value = ",".join(f"{name}={each}" for name, each in value.items())
        elif isinstance(value, list):
            value = ",".join(map(str, value))
        return Token(keyword=option, value=str(value), source=source)


def _option_names(command: App) -> set[str]:
    arguments = command.assemble_argument_collection()
    return {name for each in arguments for name in _long_names(each)} - _PERSONAL


def _long_names(argument: Argument) -> set[str]:
    """Return the names of an option in a file: not those of hidden fields, nor ``--no-…``."""
    if not argument.parse:
        return set()
    return {each for each in argument.names if each.startswith("--")} - set(argument.negatives)


# -- what several commands share -----------------------------------------------------------------


def command_line() -> str:
    """Return the command as it was typed, for reports."""
    import shlex

    return shlex.join(["countersample", *sys.argv[1:]])


def note_files(data: Path | str, fold: int | None) -> None:
    """Print which fold of a folder is read, and which of its files are not."""
    from countersample.data.labelled_files import layout_of

    layout = layout_of(data)
    for text in [] if layout is None else layout.notes(fold):
        console.note(f"countersample: {text}")
