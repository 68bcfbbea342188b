"""The summary of a report: what was trained, how much better it is, what it cost, in sentences and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..metrics.seeds import FEWEST_SEEDS, Difference, Spread
from ..runs.reader import fastest_seconds
from .content import Tile
from .groups import Group, best, compared, error_difference, reference


def summary_tiles(groups: Sequence[Group]) -> list[Tile]:
    """Return the best error of a setting, its distance to the Baseline, and its cost."""
    ours, base = best(groups), reference(groups)
    if ours is None:
        return []
    tiles = [_error_tile(ours, f"{'100 − mAP' if ours.several_labels else 'error'} with")]
    if base is not None and base is not ours:
        tiles.append(_error_tile(base, "with"))
        gap = error_difference(ours, base)
        if gap is not None:
            interval = ", one seed" if gap.count == 1 else ""
            interval = interval if gap.half_width is None else f", ± {gap.half_width:.2f}"
            tiles.append(Tile(f"{gap.mean:+.2f}", f"points of difference{interval}", gap.clear))
    price = best_price(groups)
    ratios = [(price.training, "computation to train it"), (price.use, "computation to use it")] if price else []
    return tiles + [Tile(f"{times:.1f} ×", label) for times, label in ratios if times is not None]


def _error_tile(g: Group, words: str) -> Tile:
    chance = ", which is chance level" if g.is_at_chance() else ""
    return Tile(f"{g.error().mean:.2f} %", f"{words} {g.label}{chance}")


def summary_sentences(groups: Sequence[Group]) -> list[str]:
    """Say what was trained and how much better it is, for somebody who reads nothing else."""
    about = compared(groups)
    sentences = [_story(same) + _chance(same) for same in about[:3]]
    if len(about) > 3:
        pairs = [(best(same), reference(same)) for same in about]
        gaps = [gap for a, b in pairs if a and b and a is not b and (gap := error_difference(a, b)) is not None]
        won = sum(gap.mean < 0 for gap in gaps)
        verdict = f"In {won} of {len(gaps)} such comparisons the best method errs less than the Baseline; "
        more = "1 more is" if len(about) == 4 else f"{len(about) - 3} more are"
        sentences.append((verdict if gaps else "") + f"{more} in the table.")
    if len(about) == 1:
        sentences += _price_sentences(about[0])
    others = [f"{g.setting} ({g.label})" for g in groups if not any(g in same for same in about)]
    if others:  # such as a teacher
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        sentences.append(f"Trained besides: {', '.join(others[:3])}{more}.")
    return sentences


def _story(groups: Sequence[Group]) -> str:
    setting, base, ours = groups[0].setting, reference(groups), best(groups)
    if ours is None:
        return f"{setting}: no run has finished an epoch yet."
    if ours.several_labels:
        return _story_of_labels(setting, ours, base)
    error = f"{ours.error().text()} % of the {ours.tested_on}{_so_far(ours)}"
    if base is None or ours is base:
        seeds = " (one seed)" if len(ours.counted) == 1 else ""
        return f"{setting}: trained with {ours.label}, the network errs on {error}{seeds}."
    theirs = base.error()
    both = (
        f"{setting}: trained with {ours.label} the network errs on {error}, with {base.label} on {theirs.text()} %"
    )
    gap = error_difference(ours, base)
    if gap is None:
        return f"{both}{_so_far(base)}: too early to compare."
    change = f"{100 * abs(gap.mean) / theirs.mean:.0f} %" if theirs.mean else f"{abs(gap.mean):.2f} points"
    rivals = sum(g is not base and g.finished for g in groups)
    chosen = f" It is the lowest of {rivals} recipes, which flatters it a little." if rivals > 1 else ""
    outcome = f"{change} {'fewer' if gap.mean < 0 else 'more'} errors" if gap.mean else "no difference"
    return f"{both}: {outcome} ({_caveat(gap)}).{chosen}"


def _caveat(gap: Difference) -> str:
    """Say how far a difference is from chance; of one or two seeds nothing is concluded."""
    if gap.half_width is None:
        unknown = "without a seed in common, how much of this is chance is unknown"
        return "one seed, which says nothing about chance" if gap.count else unknown
    interval = f"{gap.mean:+.2f} ± {gap.half_width:.2f} points, 95 % interval over {gap.count} seeds"
    if gap.count < FEWEST_SEEDS:
        return f"{interval}: too few to tell it from chance"
    return f"{interval}: {'a clear difference' if gap.clear else 'no clear difference'}"


def _chance(groups: Sequence[Group]) -> str:
    """Name the recipes of a setting whose error is that of guessing, in a sentence after its story."""
    guessing = [g for g in groups if g.is_at_chance()]
    if not guessing:
        return ""
    more = f" and {len(guessing) - 3} more" if len(guessing) > 3 else ""
    names = f"{', '.join(g.label for g in guessing[:3])}{more}"
    error = guessing[0].evaluation.guessing_error
    return f" No better than guessing: {names}; always naming the commonest class errs on {error:.2f} %."


def _story_of_labels(setting: str, ours: Group, base: Group | None) -> str:
    """Tell the mAP of images with several labels."""
    text = f"{setting}: trained with {ours.label}, the network has a mAP of {ours.final('map').text()} % on the "
    text += f"{ours.tested_on}{_so_far(ours)}"
    if base is None or ours is base:
        return f"{text}."
    text += f", with {base.label} {base.final('map').text()} %{_so_far(base)}"
    gap = error_difference(ours, base)
    if gap is None:
        return f"{text}: too early to compare."
    change = f"{abs(gap.mean):.2f} points {'higher' if gap.mean <= 0 else 'lower'}"
    return f"{text}: {change} (error {_caveat(gap)})."


def _so_far(g: Group) -> str:
    return "" if g.finished else f" so far, after {g.epochs} of {g.planned_epochs or '?'} epochs"


@dataclass
class Price:
    """What a method costs in units of the Baseline, or else of the plain network; None where it is not known."""

    training: float | None
    clock: float | None
    use: float | None


def best_price(groups: Sequence[Group]) -> Price | None:
    """Return the price of the best method of a setting."""
    ours, base = best(groups), reference(groups)
    if ours is None or ours is base:
        return None
    macs = None if ours.network is None else ours.network.macs
    if base is None:
        return Price(ratio(ours.evaluation.step_macs, ours.evaluation.plain_macs), None, ratio(macs, macs))
    use = ratio(macs, None if base.network is None else base.network.macs)
    return Price(ratio(ours.planned_macs, base.planned_macs), clock_ratio(ours, base), use)


def _price_sentences(groups: Sequence[Group]) -> list[str]:
    price = best_price(groups)
    if price is None or price.training is None or price.use is None:
        return []
    clock = f" ({price.clock:.1f} times the time by the clock)" if price.clock is not None else ""
    use = "no more" if price.use <= 1 else f"{price.use:.1f} times as much"
    plain = "" if reference(groups) else " of the plain network"
    return [f"To train it takes {price.training:.1f} times the computation{plain}{clock}; to use it takes {use}."]


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def clock_ratio(g: Group, base: Group | None) -> float | None:
    """Compare each run at its fastest, for other work slows some down; known once both have finished."""
    if base is None or not (g.finished and base.finished):
        return None
    ours, theirs = (Spread.of(map(fastest_seconds, group.counted)) for group in (g, base))
    return ratio(ours.mean, theirs.mean) if ours.count and theirs.count else None
