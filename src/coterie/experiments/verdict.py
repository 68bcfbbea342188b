"""What a comparison has shown, in two plain sentences: who is clearly better, or how many seeds would tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..metrics.seeds import TOLERANCE, Difference, Spread, paired, paired_differences, seeds_needed, seeds_won

MOST_SEEDS = 50
"""Beyond this, the number of seeds that would be needed is not told."""


@dataclass(frozen=True)
class MethodResult:
    """A method's errors by seed, beside those of the reference."""

    label: str
    errors: dict[int, float]
    reference: dict[int, float]
    cost: float | None = None
    """Training time in that of the reference."""
    at_chance: bool = False
    """Whether its error is no better than guessing."""
    several_labels: bool = False
    """Whether images have several labels, so that an error is 100 - mAP."""

    @property
    def error(self) -> Spread:
        return Spread.of(self.errors.values())

    @cached_property
    def differences(self) -> list[float]:
        """To the reference, by common seed; below zero this method errs less."""
        return paired_differences(self.errors, self.reference)

    @cached_property
    def difference(self) -> Difference | None:
        return paired(self.errors, self.reference)

    @property
    def won(self) -> int:
        return seeds_won(self.differences)

    @property
    def clear(self) -> bool:
        return self.difference is not None and self.difference.clear

    @property
    def equal(self) -> bool:
        """Whether it errs as often as the reference with every seed: no number of seeds would tell them apart."""
        return all(abs(difference) <= TOLERANCE for difference in self.differences)

    @property
    def mean(self) -> float:
        """The mean of the differences."""
        return self.difference.mean if self.difference is not None else 0.0


def verdict(reference: str, results: Sequence[MethodResult], images: str) -> str:
    """Say in two sentences which differences are clear and which are not yet; the errors are of `images`."""
    compared = [result for result in results if result.difference is not None]
    missing = [result.label for result in results if result.difference is None]
    if not compared:
        return (
            f"Nothing can be said yet: no seed is finished of both {reference} and another method. "
            "The same command continues."
        )
    if all(len(result.differences) == 1 for result in compared):
        return _of_one_seed(reference, compared, images)
    better = sorted((r for r in compared if r.clear and r.mean < 0), key=lambda result: result.error.mean)
    worse = sorted((r for r in compared if r.clear and r.mean > 0), key=lambda result: result.mean)
    unclear = [result for result in compared if not result.clear]
    different = [result for result in unclear if not result.equal]
    equal = [result for result in unclear if result.equal]
    parts = [*_parts("is clearly better than {} too", "are clearly better than {} too", better[1:], reference)]
    if better:
        best = better[0]
        first = f"{best.label} is clearly better than {reference} on the {images}: {_gain(best)}{_price(best)}."
        parts = parts or [f"{_better(best)} with {_of(best.won, best)} seeds"]
    elif unclear:
        seeds = max(len(result.differences) for result in compared)
        clearly = f"no method is clearly better than {reference} on the {images}"
        first = f"Nothing can be said yet: over {seeds} seeds {clearly}."
    else:
        others = _listed([result.label for result in worse])
        first = f"{reference} is clearly better than {others} on the {images}: {_gain(worse[0])}."
        lost = sum(difference > 0 for difference in worse[0].differences)
        parts = [f"{_better(worse[0])} than {worse[0].label}'s with {_of(lost, worse[0])} seeds"]
        if not worse[0].several_labels:
            parts = [f"it errs less than {worse[0].label} with {_of(lost, worse[0])} seeds"]
    if better or unclear:
        parts += _parts("is clearly worse than {}", "are clearly worse than {}", worse, reference)
    if different:
        parts.append(f"to see a difference as large as now takes {_listed([_needed(r) for r in different])}")
    parts += _parts(
        "has the error of {} with every seed", "have the error of {} with every seed", equal, reference
    )
    if missing:
        parts.append(f"{_listed(missing)} {'has' if len(missing) == 1 else 'have'} no finished run yet")
    second = "; ".join(parts)
    return f"{first} {second[0].upper()}{second[1:]}."


def chance_sentence(results: Sequence[MethodResult]) -> str:
    """Name the methods that are no better than guessing, in a sentence after the verdict; empty without any."""
    guessing = [f"{result.label} ({result.error.mean:.2f} %)" for result in results if result.at_chance]
    return f" No better than guessing: {_listed(guessing)}." if guessing else ""


def _of_one_seed(reference: str, compared: Sequence[MethodResult], images: str) -> str:
    best = min(compared, key=lambda result: result.mean)
    outcome = f"made {abs(best.mean):.2f} points {'fewer' if best.mean <= 0 else 'more'} errors"
    if best.several_labels:
        outcome = f"had {abs(best.mean):.2f} points {'more' if best.mean <= 0 else 'less'} mAP"
    return (
        f"One seed says nothing about chance: with it {best.label} {outcome} than {reference} on the {images}. "
        "Ask for three seeds or more: the same command then trains only what is missing."
    )


def _gain(result: MethodResult) -> str:
    """Say how many errors are fewer, of the method or of the reference: 2.51 ± 1.14 points ... over 5 seeds."""
    difference = result.difference
    assert difference is not None
    than = "" if difference.mean < 0 else f" than {result.label}"
    interval = f"{abs(difference.mean):.2f} ± {difference.half_width:.2f}"
    gain = "more mAP" if result.several_labels else "fewer errors"
    return f"{interval} points {gain}{than} over {difference.count} seeds (95 % interval)"


def _better(result: MethodResult) -> str:
    return "its mAP is higher" if result.several_labels else "it errs less"


def _price(result: MethodResult) -> str:
    return "" if result.cost is None else f", for {result.cost:.1f} times the training time"


def _of(count: int, result: MethodResult) -> str:
    return f"{count} of {len(result.differences)}"


def _needed(result: MethodResult) -> str:
    """Say how many seeds would show a difference of the size seen, with the spread seen."""
    count = seeds_needed(result.differences, MOST_SEEDS)
    if len(result.differences) < 2:
        return f"a second seed of {result.label} first"
    seeds = f"more than {MOST_SEEDS} seeds" if count is None else f"about {count} seeds"
    return f"{seeds} for {result.label} ({result.mean:+.2f} points)"


def _parts(one: str, many: str, results: Sequence[MethodResult], reference: str) -> list[str]:
    form = one if len(results) == 1 else many
    return [f"{_listed([result.label for result in results])} {form.format(reference)}"] if results else []


def _listed(words: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
