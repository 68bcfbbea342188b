"""The command `data`: fetch or check a set, or look into one."""

from __future__ import annotations

from collections.abc import Container
from inspect import signature
from pathlib import Path
from typing import Any

from ..errors import InputError, unknown
from .calling import call, print_json, summary


def data(arguments: list[str]) -> None:
    """Fetch or check a data set (`data cifar100`) or look into one (`data inspect NAME_OR_FOLDER`)."""
    from ..data import available, find
    from ..data.cifar import Cifar
    from ..data.fashion_mnist import fashion_mnist

    names = {name: found for name, found in available().items() if issubclass(found, Cifar)}
    what, *rest = arguments or ["--help"]
    if what in ("-h", "--help"):
        print(
            "usage: coterie data NAME [--root DIR] [--url URL]      fetch one of: " + ", ".join(names) + "\n"
            "       coterie data fashion_mnist [--root DIR]         check that it is there, or say how to get it\n"
            "       coterie data inspect NAME_OR_FOLDER [OPTIONS]   what is in a set; --help shows its options"
        )
    elif what == "inspect":
        if not rest or rest[0].startswith("-"):
            raise InputError("Name what to inspect: `coterie data inspect NAME_OR_FOLDER`.")
        source, preset = find(rest[0])
        _inspect(source, preset, rest[1:])
    elif what in names:
        from ..data.fetch import fetch

        def fetched(root: str = "data", url: str | None = None) -> None:
            """Fetch the official release, checksummed.

            Args:
                root: where to put it.
                url: a mirror of the official archive.
            """
            print(fetch(names[what], Path(root), url))

        call(f"data {what}", fetched, rest)
    elif what == fashion_mnist.__name__:

        def checked(root: str = "data") -> None:
            """Check that the four files are there and are the official ones; nothing is downloaded.

            Args:
                root: where to look before the package's folder.
            """
            source = fashion_mnist(root)
            source.load()
            print(f"{source.locate()} holds fashion_mnist: every checksum is right. To get it: {source.ways()}.")

        call(f"data {what}", checked, rest)
    else:
        raise unknown("data set to fetch", what, [*names, fashion_mnist.__name__, "inspect"])


def _inspect(source: Any, preset: dict[str, Any], arguments: list[str]) -> None:
    from jsonargparse import ArgumentParser

    from ..config.parsing import parse
    from ..data import inspect
    from ..report.tables import print_data

    def look(views: int = 3, images: int = 8, sheet: str = "contact-sheet.png", json: bool = False) -> None:
        """Counts per class, sizes, bad files, duplicates between splits, and a sheet of views.

        Args:
            views: how many views of each image the sheet shows.
            images: how many images it shows.
            sheet: the PNG file to write.
            json: print JSON.
        """
        if min(views, images) < 1:
            raise InputError("--views and --images must be at least 1.")
        made.load()
        try:  # before every image is read
            Path(sheet).parent.mkdir(parents=True, exist_ok=True)
            Path(sheet).open("ab").close()
        except OSError as error:
            raise InputError(f"--sheet {sheet} cannot be written ({(error.strerror or '').lower()}).") from None
        found = inspect.inspect(made)
        inspect.contact_sheet(made, views, images).save(sheet, "PNG")
        found["sheet"] = sheet
        print_json(found) if json else print_data(found)

    parser = ArgumentParser(prog="coterie data inspect", exit_on_error=False, description=summary(look))
    parser.add_function_arguments(look)
    own = parser.add_class_arguments(source, "data", skip=set(preset))
    config = parse(
        parser, _prefixed(arguments, [name.partition(".")[2] for name in own], signature(look).parameters)
    )
    made = source(**preset, **vars(config.pop("data", None) or type(config)()))
    look(**vars(config))


def _prefixed(arguments: list[str], names: list[str], ours: Container[str]) -> list[str]:
    """The set's own options may be written without the `data.` that `coterie train` needs.

    What neither the set nor this command knows is for the class that our `dataset` makes.
    """

    def whole(argument: str) -> str:
        name = argument[2:].partition("=")[0].replace("-", "_")
        if argument[:2] != "--" or name in ours or name == "help":
            return argument
        if name.partition(".")[0] in names:
            return f"--data.{argument[2:]}"
        return f"--data.options.{argument[2:]}" if "options" in names else argument

    return [whole(argument) for argument in arguments]
