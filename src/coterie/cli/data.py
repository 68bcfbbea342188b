"""The command `data`: fetch, check or inspect a data set."""

from __future__ import annotations

import io
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any, Literal

from ..errors import InputError, printable, unknown
from ..files import write
from ..names import subclass_names
from ..runs.own_files import check_output
from .calling import call, print_json, summary

LARGEST_VIEWS = 2**29
"""Values of the views of one image, which are in memory at once: 2 GB."""


def data(arguments: list[str]) -> None:
    """Download a data set, or inspect one: its counts, broken files, duplicates and augmented views."""
    fetched = subclass_names("data", "Cifar")
    action, *options = arguments or ["--help"]
    if action in ("-h", "--help"):
        print(
            "usage: coterie data NAME [--root DIR] [--url URL]      download " + " or ".join(fetched) + " to DIR\n"
            "       coterie data fashion_mnist [--root DIR]         check the files, or say how to get them\n"
            "       coterie data inspect NAME_OR_FOLDER [OPTIONS]   count images, find broken ones, show views\n\n"
            "DIR is `data` by default, and --url sets a mirror. See also `coterie data inspect --help`."
        )
    elif action == "inspect" and options[:1] in (["-h"], ["--help"]):
        print(
            "usage: coterie data inspect NAME_OR_FOLDER [OPTIONS]\n\n"
            "Show the classes, sizes, unreadable files and duplicates of a data set, and a sheet of its\n"
            "augmented views. Each kind of data set has its own options: `coterie data inspect digits --help`."
        )
    elif action == "inspect":
        if not options or options[0].startswith("-"):
            raise InputError("Name what to inspect: `coterie data inspect NAME_OR_FOLDER`.")
        from ..data import find_data_set

        _inspect(*find_data_set(options[0]), options[1:])
    elif action in fetched:
        from ..data import data_sets

        _fetch(data_sets()[action], options)
    elif action == "fashion_mnist":
        _check_fashion_mnist(options)
    else:
        raise unknown("data set to fetch", action, [*fetched, "fashion_mnist", "inspect"])


def _fetch(cls: Any, options: list[str]) -> None:
    def fetch(root: str = "data", url: str | None = None) -> None:
        """Download the official release and verify its checksums.

        Args:
            root: the directory to download to.
            url: a mirror of the official archive.
        """
        from ..data.fetch import fetch_cifar

        print(printable(str(fetch_cifar(cls, Path(root), url))))

    call(f"data {cls.__name__}", fetch, options)


def _check_fashion_mnist(options: list[str]) -> None:
    def check(root: str = "data") -> None:
        """Check that the four files exist and are the official ones; nothing is downloaded.

        Args:
            root: the directory to search before that of the Debian package.
        """
        from ..data.fashion_mnist import fashion_mnist

        source = fashion_mnist(root)
        source.load()
        print(printable(f"{source.locate()} holds fashion_mnist: every checksum is right."))
        print(printable(f"To get it: {source.how_to_get.replace('`root`', '--data.root')}."))

    call("data fashion_mnist", check, options)


def _inspect(cls: Any, preset: dict[str, Any], arguments: list[str]) -> None:
    from jsonargparse import ArgumentParser, Namespace

    from ..config.parsing import parse
    from ..data.inspection import contact_sheet, inspect_data
    from ..report.command_tables import print_data

    def inspect(
        views: int = 3,
        images: int = 8,
        sheet: str = "contact-sheet.png",
        task: Literal["auto", "single_label", "multi_label"] = "auto",
        json: bool = False,
    ) -> None:
        """Show counts per class, sizes, unreadable files, duplicates between splits, and a sheet of views.

        Args:
            views: number of views of each image on the sheet.
            images: number of images on the sheet.
            sheet: the PNG file of the sheet.
            task: the task of the training; with multi_label, images may have no label.
            json: print JSON.
        """
        if not 1 <= min(views, images) <= max(views, images) <= 1000:
            raise InputError("--views and --images must be from 1 to 1,000.")
        data_set.task = task
        data_set.load()
        if views * prod(data_set.shape) > LARGEST_VIEWS:
            side = f"{data_set.shape[1]}x{data_set.shape[2]}"
            raise InputError(f"{views} views of {side} pixels are more than memory may hold: fewer --views.")
        _check_writable(Path(sheet))  # before every image is read
        contents, png = {**inspect_data(data_set), "sheet": sheet}, io.BytesIO()
        contact_sheet(data_set, views, images).save(png, "PNG")
        write(Path(sheet), png.getvalue())
        print_json(contents) if json else print_data(contents)

    parser = ArgumentParser(
        prog="coterie data inspect", exit_on_error=False, allow_abbrev=False, description=summary(inspect)
    )
    parser.add_function_arguments(inspect)
    own = [name.partition(".")[2] for name in parser.add_class_arguments(cls, "data", skip=set(preset))]
    command_options = list(signature(inspect).parameters)
    config = parse(parser, [_with_prefix(argument, own, command_options) for argument in arguments])
    data_set = cls(**preset, **vars(config.pop("data", None) or Namespace()))
    inspect(**vars(config))


def _check_writable(sheet: Path) -> None:
    """Refuse a file that cannot be written; nothing is left of the trial."""
    check_output(sheet, "--sheet")
    try:
        sheet.parent.mkdir(parents=True, exist_ok=True)
        new = not sheet.exists()
        sheet.open("ab").close()
        if new:
            sheet.unlink()
    except OSError as error:
        raise InputError(f"--sheet {sheet} cannot be written ({(error.strerror or '').lower()}).") from None


def _with_prefix(word: str, options: list[str], command_options: list[str]) -> str:
    """Add the `data.` that `coterie train` needs to an option of the set.

    An option that neither the set nor the command has is one of the class that our `dataset` makes.
    """
    name = word[2:].partition("=")[0].replace("-", "_")
    if word[:2] != "--" or name in [*command_options, "help"]:
        return word
    if name.partition(".")[0] in options:
        return f"--data.{word[2:]}"
    return f"--data.options.{word[2:]}" if "options" in options else word
