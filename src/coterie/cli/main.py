"""The command line: call a command by its name; print an error as one sentence, with an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from .. import __version__
from ..errors import Failure, GivenUp, InputError, Stopped, origin, say, unknown
from ..trust import allow_imports_from_here, names_code_here
from .calling import call, summary
from .choosing import cuts, methods, models
from .comparing import compare
from .crash import describe_exception, print_traceback
from .data import data
from .flags import with_flags
from .help import command_help
from .measuring import bench, doctor
from .reporting import report, reproduce
from .shipping import export, predict, push
from .training import demo, evaluate, train
from .typos import check_text, check_words

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "compare": compare,
    "data": data,
    "evaluate": evaluate,
    "export": export,
    "push": push,
    "predict": predict,
    "reproduce": reproduce,
    "report": report,
    "methods": methods,
    "models": models,
    "cuts": cuts,
    "bench": bench,
    "doctor": doctor,
}


TRACEBACK = "--traceback"
"""Of every command: print the traceback of an error too."""
TAKE_CODE = (train, compare, data, evaluate, methods)
"""Commands whose options may name classes of the user's own, to be imported from the working directory."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; print an error as one sentence and exit with its code.

    `--traceback`, which every command takes, prints the traceback of an error before its sentence.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    with_traceback, arguments = TRACEBACK in arguments, [word for word in arguments if word != TRACEBACK]
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a pipe on Windows may lack some letters: no reason to fail
            stream.reconfigure(errors="replace")
    try:
        _run(arguments)
    except (InputError, Failure, Stopped) as error:
        if with_traceback:
            print_traceback(error)
        message = str(error)
        if arguments[0] in COMMANDS:
            message = with_flags(message, arguments[0], COMMANDS[arguments[0]])
        say(message)
        codes = {InputError: 2, Failure: 1, Stopped: 75}  # 75 is EX_TEMPFAIL: try again
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        if isinstance(error, GivenUp):  # a runtime that still computes would abort an orderly exit
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        sys.exit(code)
    except SystemExit as ended:
        if not (place := origin(ended)):
            raise
        # A script that was to be imported, and ran: its exit code is not that of the command.
        say(f"Your own code ended the process ({place}, exit code {ended.code}): do so as __main__ alone.")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads on; a training that printed there has not ended
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:  # once more at the exit, if it could
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(1)
    except Exception as error:
        if with_traceback:
            print_traceback(error)
        message, code = describe_exception(error)
        say(message)
        sys.exit(code)


def _open_closed_streams() -> None:
    """Give a process without standard streams, such as a service, empty ones: no other file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return
    name, *rest = arguments
    if name == "--version":
        print(f"coterie {__version__}")
        return
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    command = COMMANDS[name]
    check_text(rest)
    if command is not data:  # it has commands of its own
        file = Path(command.__code__.co_filename)
        if {"-h", "--help"} & set(rest):
            print(command_help(name, file))
            return
        rest = ["--help" if word == "--help-all" else word for word in rest]
        check_words(name, file, rest)
    if command in TAKE_CODE and names_code_here(rest):
        allow_imports_from_here()
    if command in (train, compare, data):
        command(rest)
    else:
        call(name, command, rest)


def _help() -> str:
    rows = "\n".join(f"  {name:<10} {summary(command)}" for name, command in COMMANDS.items())
    return (
        "Coterie: train the network you will deploy better, without a teacher, by giving it peers.\n\n"
        f"usage: coterie COMMAND [OPTIONS]\n\n{rows}\n\n"
        "`coterie COMMAND --help` shows the options of a command. To begin, run `coterie demo`."
    )
