"""Explain failures of a training that an option can prevent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..config.recipe import Recipe
from ..data.workers import WorkerFailure
from ..errors import Failure, InputError, is_out_of_memory


@contextmanager
def explain_failures(recipe: Recipe) -> Iterator[None]:
    """Name the options that help where memory runs out, batch-norm gets a single image, or compilation fails.

    After a failure of data workers or of another process, say that the last checkpoint is kept.
    """
    try:
        yield
    except WorkerFailure as failure:
        raise Failure(f"{failure} The last checkpoint is kept; the same command continues from it.") from failure
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "Batch-norm cannot be trained with one image at a time: raise `batch`, or lower `accumulate`."
        ) from error
    except (MemoryError, RuntimeError) as error:
        if recipe.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            why = str(error).strip().splitlines()[0]
            raise InputError(f"The peers cannot be compiled ({why}): leave out `compile`.") from error
        if re.search("Connection (closed|reset) by peer|remote process exited", str(error)):
            raise Failure(
                "Another process of this training has ended, and says why itself. The last checkpoint is kept; "
                "the same command continues from it."
            ) from error
        if not is_out_of_memory(error):
            raise
        half = "" if recipe.precision != "32" else "`precision` bf16, "
        raise Failure(
            f"Out of memory with a batch of {recipe.batch}: `accumulate` 2 (or more) computes it in parts, {half}"
            "more processes, fewer `peers`, a later `cut` or a smaller `batch` help too. "
            "The last checkpoint is kept."
        ) from error
