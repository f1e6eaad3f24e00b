"""The list of commands, the options that all of them have, and usage errors.

`COMMANDS` has the function of every command, which returns an `Output`; the library is imported
when it runs. A ``countersample.toml`` in the current folder, or the file of ``--config``, supplies
options to every command that has them.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter, Token
from cyclopts.exceptions import CoercionError, MissingArgumentError

from countersample._files import check_outputs
from countersample._version import __version__
from countersample.cli import console, data, fit, logs, rankers, study
from countersample.errors import CounterSampleError, DataError, ParameterError
from countersample.options import Options, choices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cyclopts import Argument, ArgumentCollection

CONFIG = Path("countersample.toml")  # read if it is in the current folder
USAGE = 2  # the exit code of a command that is not understood
_OUTPUTS = ("out", "plot", "report", "target")  # parameters that name what a command writes
_TEXT_INPUTS = ("against", "data", "log", "path", "rankers", "studies")  # globs, or names of sets
_TABLES = {"--columns", "--values"}  # options whose value is a table of names and values
_AMBIGUOUS = {"--method", "--features", "--queries"}  # parameters of these names have other options
_PERSONAL = {"--out", "-o", "--help", "-h", "--version"}  # of one call, not of a team


def _show_default(value: Any) -> str | None:  # noqa: ANN401 (of any option)
    if not value or value is True:
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


app = App(
    name="countersample",
    help="Turn a biased click log into an unbiased ranker.",
    version=f"countersample {__version__}",
    help_flags=("--help", "-h"),
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=_show_default),
    result_action="return_value",
)
app.meta.group_parameters = Group("Options of all commands", sort_key=10)
app.register_install_completion_command()
COMMANDS = {  # in the order of the help page
    "": (
        fit.fit, fit.compare, rankers.rank, rankers.export, logs.propensity, logs.judgements,
        rankers.train, rankers.evaluate, data.simulate, study.demo, study.reproduce,
    ),
    "log": (logs.check, logs.count, logs.sample),
    "data": (data.list_, data.info, data.convert, data.make),
    "study": (study.status, study.claims),
}  # fmt: skip
_HOMES = {
    "": app,
    "log": App(name="log", help="Check, count and sample raw logs.", sort_key=1),
    "data": App(name="data", help="List, describe, convert and make labelled data.", sort_key=2),
    "study": App(
        name="study", help="Show the progress of a study, and test its claims.", sort_key=3
    ),
}


def _protect_inputs(command: Callable[..., console.Output]) -> Callable[..., console.Output]:
    """Return the command with a check, before its work, that it replaces none of its inputs."""

    @wraps(command)
    def protected(*args: Any, **kwargs: Any) -> console.Output:  # noqa: ANN401 (of any command)
        values = signature(command).bind(*args, **kwargs).arguments
        outputs = {name: values.pop(name) for name in _OUTPUTS if values.get(name) is not None}
        inputs = [each for name, value in values.items() for each in _list_inputs(name, value)]
        check_outputs(outputs.values(), [*inputs, *(each.path for each in app.config)])
        start = getattr(values.get("ranker"), "warm_start", None)
        if start is not None:  # --out may replace it: it is read first, and replaced at the end
            check_outputs([path for name, path in outputs.items() if name != "out"], [start])
        return command(*args, **kwargs)

    return protected


def _list_inputs(name: str, value: Any) -> Iterator[str | Path]:  # noqa: ANN401 (of any option)
    """Yield what an option reads: its paths, and texts that name files, folders or globs."""
    if isinstance(value, Path) or (isinstance(value, str) and name in _TEXT_INPUTS):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _list_inputs(name, each)
    elif isinstance(value, Options):
        for each, part in vars(value).items():
            if each != "warm_start":
                yield from _list_inputs(each, part)


for _name, _home in _HOMES.items():
    for _place, _function in enumerate(COMMANDS[_name], start=-20):
        _home.command(
            _protect_inputs(_function), name=_function.__name__.rstrip("_"), sort_key=_place,
            group_parameters=Group("Options", sort_key=9),
        )  # fmt: skip
    if _home is not app:
        app.command(_home)


@app.meta.default
def run(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    json: bool = False,
    config: Path | None = None,
    log_format: Literal["text", "json"] | None = None,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
) -> int:
    """Run a command.

    :param json: Print the result as JSON, for scripts.
    :param config: A TOML file with options; by default countersample.toml of the current folder.
    :param log_format: Write a log of the steps to standard error, as text or JSON lines.
    :param log_level: The least severe messages to log; info by default.
    """
    console.configure_log(log_format, log_level)
    if config is not None and not config.is_file():
        raise DataError(f"{config}: no such file, expected a file with options (--config)")
    path = config or (CONFIG if CONFIG.is_file() else None)
    app.config = () if path is None else (_ConfigFile(path),)
    output = app(tokens, exit_on_error=False, print_error=False)
    if not isinstance(output, console.Output):  # of --help and --version
        return 0
    output.show(as_json=json)
    return output.code


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; usage errors become one sentence."""
    app.config = ()
    try:
        code: Any = app.meta(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value"
        )
    except ParameterError as error:
        raise _with_option(error, arguments) from error
    except CycloptsError as error:
        ours = _our_error(error)
        if ours is not None:
            raise _with_option(ours, arguments) from error
        console.report(_describe_usage(error), level="error")
        return USAGE
    return code if isinstance(code, int) else 0


def _with_option(error: CounterSampleError, arguments: Sequence[str]) -> CounterSampleError:
    """Return the error of a parameter with the name of its option, if the command has it."""
    command = _find_command(arguments)
    if command is None or not isinstance(error, ParameterError):
        return error
    return ParameterError(console.name_option(str(error), _list_options([command]) - _AMBIGUOUS))


def _find_command(arguments: Sequence[str]) -> App | None:
    """Return the command that the arguments name."""
    home = ""
    for word in arguments:
        if word in {each.__name__.rstrip("_") for each in COMMANDS[home]}:
            return _HOMES[home][word]
        if word in _HOMES and not home:
            home = word
    return None


def _describe_usage(error: CycloptsError) -> str:
    """Return a usage error as a sentence; a required option is named with its help text."""
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument and not argument.tokens:
        chain = tuple(error.command_chain or ())
        command = app
        for name in chain:
            command = command[name]
        arguments = command.assemble_argument_collection(parse_docstring=True)
        help_ = next(each.parameter.help for each in arguments if each.name == argument.name)
        name = " or ".join(name for name in argument.names if name.startswith("-")) or argument.name
        text = str(help_ or "").removesuffix(".")
        return f"{' '.join(chain)} needs {name}: {text[:1].lower()}{text[1:]}"
    error.verbose = False
    text = " ".join(str(error).split()).removesuffix(".")
    return text if text.startswith("-") else text[:1].lower() + text[1:]


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


class _ConfigFile:
    """The options in a TOML file, for every command that has an option of that name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, _app: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Set the options that are not on the command line."""
        try:
            values = tomllib.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read as TOML: {error}") from error
        options = _list_options(_list_commands()) - _PERSONAL
        for key, value in values.items():
            option = f"--{key.replace('_', '-')}"
            if option not in options or (isinstance(value, dict) and option not in _TABLES):
                near = get_close_matches(option, options - {option}, n=1)
                hint = f", did you mean {near[0].removeprefix('--')!r}?" if near else ""
                form = "a table" if isinstance(value, dict) else "an option"
                if isinstance(value, dict) and value:
                    hint = ", expected options without a table around them"
                raise DataError(
                    f"{self.path}: no command has {form} {key!r}{hint}: see countersample "
                    "COMMAND --help for the options"
                )
            for argument in arguments:
                is_set = argument.tokens or argument.children
                if option in _long_names(argument) and not is_set:
                    argument.append(_to_token(option, value, str(self.path)))


def _list_commands() -> list[App]:
    return [_HOMES[home][each.__name__.rstrip("_")]
            for home, functions in COMMANDS.items() for each in functions]  # fmt: skip


def _list_options(commands: Sequence[App]) -> set[str]:
    """Return the long names of the options of some commands."""
    collections = [command.assemble_argument_collection() for command in commands]
    return {name for each in collections for argument in each for name in _long_names(argument)}


def _to_token(option: str, value: Any, source: str) -> Token:  # noqa: ANN401 (any value of TOML)
    """Return a value as it would be written on the command line."""
    if isinstance(value, bool):
        return Token(keyword=option, implicit_value=value, source=source)
    if isinstance(value, dict):
        value = [f"{name}={each}" for name, each in value.items()]
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return Token(keyword=option, value=text, source=source)


def _long_names(argument: Argument) -> set[str]:
    """Return the names of an option in a file: without hidden fields and ``--no-…``."""
    if not argument.parse:
        return set()
    return {each for each in argument.names if each.startswith("--")} - set(argument.negatives)
