"""The numbers that a page begins with, each with what it means and which way is good."""

import html
import math
from typing import Any


def cards(report: dict[str, Any], largest: int) -> str:
    """Up to seven key numbers."""
    bound = part_of(report, "sampler_bits_per_dim")
    shown = (
        _bits_cards(part_of(report, "bits_per_dim"), bound, _instead(report), largest)
        + _quality_cards(part_of(report, "quality"), part_of(report, "floor"))
        + _speed_card(part_of(report, "sampling"), part_of(report, "machine"))
    )
    return f'<section class="cards" aria-label="Key numbers">\n{shown}</section>\n' if shown else ""


def _bits_cards(bits: dict[str, Any], bound: dict[str, Any], instead: str, largest: int) -> str:
    test, train = part_of(bits, "test"), quantity(part_of(bits, "train"), "mean", "standard_error")
    infinite, number = number_of(bound, "infinite"), f"{count_of(bound, 'images')} data points"
    return _card(
        "Bits per dimension",
        quantity(test, "mean", "standard_error"),
        "↓ lower is better",
        "What one value costs at most when the model compresses data that it has not seen; written plainly, from 0 to "
        f"{largest:,}, it costs {math.log2(largest + 1):.3g}. Mean and standard error over {count_of(test, 'images')} "
        f"data points.{f' Training data: {train}.' if train else ''}",
    ) + _card(
        "Bits per dimension, in steps",
        "∞" if infinite else quantity(bound, "mean", "standard_error"),
        "↓ lower is better",
        f"The same when {count_of(bound, 'steps')} steps are taken, of the sampler {name_of(bound, 'sampler')}, and "
        "not infinitely many. "
        + (f"They cannot reach {infinite:.1%} of {number}." if infinite else f"Mean and standard error over {number}.")
        + instead,
    )


def _instead(report: dict[str, Any]) -> str:
    """Why the bound is that of another sampler, where it is: of pure death, whose bridge has none."""
    asked = name_of(part_of(report, "plan"), "sampler")
    if not asked.startswith("bridge") or part_of(part_of(report, "model"), "process").get("kind") != "PureDeath":
        return ""
    return (
        f" The bound of the sampler {asked} itself is infinite: a step that adds at most the rounded prediction cannot "
        "take every path that data takes. In its place stand leaps, as many, which can."
    )


def _quality_cards(quality: dict[str, Any], floor: dict[str, Any]) -> str:
    """The scores of samples; beside them those of held-out data, `floor`, if they were taken."""

    def beside(number: str | None) -> str:
        return f" Of {count_of(floor, 'num_samples')} held-out data points: {number}." if floor and number else ""

    return (
        _card(
            "Fréchet distance",
            quantity(quality, "frechet"),
            "↓ lower is better, 0 at best",
            f"How far {count_of(quality, 'num_samples')} samples as a crowd are from "
            f"{count_of(quality, 'num_reference')} data points ({name_of(quality, 'reference')}), by mean and "
            f"covariance of a network’s features.{beside(quantity(floor, 'frechet'))}",
        )
        + _card(
            "Kernel distance",
            quantity(quality, "kernel", "kernel_error"),
            "↓ lower is better, 0 at best",
            "The same question, with an answer that is right on average for any number of samples. After ± stands the "
            f"standard deviation over random subsets.{beside(quantity(floor, 'kernel', 'kernel_error'))}",
        )
        + _card(
            "Inception score",
            quantity(quality, "inception_score", "inception_error"),
            "↑ higher is better, as a rule",
            "How sure the network is what each sample shows, and how much samples differ in that: 1 if all are alike, "
            "its number of classes at most. After ± stands the standard deviation over splits."
            f"{beside(quantity(floor, 'inception_score', 'inception_error'))}",
        )
        + _card(
            "Precision and recall",
            _both(quality),
            "↑ higher is better, 1 at best",
            "Precision: the share of samples that lie where data lies. Recall: the share of data that lies where "
            f"samples lie. Blurred samples cost the first, a lack of variety the second.{beside(_both(floor))}",
        )
    )


def _both(scores: dict[str, Any]) -> str | None:
    precision, recall = number_of(scores, "precision"), number_of(scores, "recall")
    return None if precision is None or recall is None else f"{precision:.3f} <small>and</small> {recall:.3f}"


def _speed_card(sampling: dict[str, Any], machine: dict[str, Any]) -> str:
    return _card(
        "Samples per second",
        quantity(sampling, "images_per_second"),
        "↑ higher is faster",
        f"{count_of(sampling, 'num')} samples took {count_of(sampling, 'seconds')} s, each of "
        f"{count_of(sampling, 'steps')} steps of the sampler {name_of(sampling, 'sampler')}. Device: "
        f"{name_of(machine, 'device')}.",
    )


def _card(title: str, number: str | None, better: str, meaning: str) -> str:
    if number is None:
        return ""
    return (
        f'<div class="card"><h2>{title}</h2>\n<p class="number">{number}</p>\n'
        f'<p class="better">{better}</p>\n<p>{meaning}</p></div>\n'
    )


def notes(quality: dict[str, Any]) -> str:
    """What must not be concluded from the distances."""
    warning = (
        f'<p class="warn"><b>Careful:</b> {count_of(quality, "num_samples")} samples are fewer than the features. Such '
        "a Fréchet distance compares only with others of as many samples.</p>\n"
    )
    fixed = (
        "<p>Distances in the features of different networks cannot be compared; these are in the features of "
        f"<b>{name_of(quality, 'features')}</b>.</p>\n"
    )
    return (warning if quality.get("rank_deficient") else "") + (fixed if quality else "")


def part_of(report: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a report, empty if it is not there."""
    part = report.get(name)
    return part if isinstance(part, dict) else {}


def number_of(part: dict[str, Any], name: str) -> float | None:
    value = part.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def count_of(part: dict[str, Any], name: str) -> str:
    value = number_of(part, name)
    return "?" if value is None else f"{value:,.0f}"


def name_of(part: dict[str, Any], name: str) -> str:
    return escape(part.get(name, "?"))


def quantity(part: dict[str, Any], name: str, error: str = "") -> str | None:
    """A number and its error, to the one digit that is uncertain, or two if the first is a 1."""
    value, spread = number_of(part, name), number_of(part, error)
    if value is None:
        return None
    if not spread or spread < 0:
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    power = math.floor(math.log10(spread))
    digits = max(0, (1 if spread < 2 * 10.0**power else 0) - power)
    return f"{value:,.{digits}f} <small>± {spread:,.{digits}f}</small>"


def escape(value: Any) -> str:
    return html.escape(str(value))
