"""What the paper printed of the Divorce questionnaire, and why some numbers differ from the printed ones."""

from __future__ import annotations

# Statement, MultiHSIC's p-value, PolyHSIC's.
DIVORCE_TABLE = (
    ("My argument with my wife is not calm.", "<0.01", "<0.01"),
    ("Fights often occur suddenly.", "<0.01", "0.41"),
    ("I can insult my spouse during our discussions.", "<0.01", "0.09"),
    (
        "When fighting with my spouse, I usually use expressions such as ‘you always’ or ‘you never’.",
        "<0.01",
        "0.17",
    ),
    ("We're compatible with my wife about what love should be.", "<0.01", "0.43"),
    ("My wife and most of our goals are common.", "<0.01", "0.25"),
    ("I feel aggressive when I argue with my wife.", "<0.01", "0.22"),
    ("We're starting a fight before I know what's going on.", "<0.01", "<0.01"),
    ("I can use negative statements about my wife's personality during our discussions.", "<0.01", "0.05"),
    ("I hate my wife's way of bringing it up.", "<0.01", "<0.01"),
    ("I enjoy our holidays with my wife.", "0.12", "0.27"),
    ("When we fight, I remind her of my wife's inadequate issues.", "0.13", "0.04"),
    ("When I argue with my wife, it will eventually work for me to contact him.", "0.16", "0.14"),
    ("I know my wife's hopes and wishes.", "0.77", "0.56"),
    ("I can use offensive expressions during our discussions.", "0.94", "0.89"),
)

# Every reason is an experiment: what was tried, and what came out.
_HEART = (
    "The authors' code turns a random number into four rows in a way that can draw a row twice, and there the "
    "kernel of the row with itself counts as 0. Its seeds are fixed, so the same features are hit in every trial: 7 "
    "of Heart's 13 columns, 2 of Pulsar's 8, none of Wine's 12. Where a column is narrow beside the one bandwidth "
    "all other kernel values are nearly 1; one such draw outweighs the rest and its variance hides the feature. On "
    "exactly their rows (the methods “authors' rows” in table3) the printed numbers come out. With only the "
    "quadruples that have a row twice replaced by others it is 0.675 and 0.580 (60 trials), as here. Neither the "
    "number of rows (50 to 138), r (1 to 15), standardising, the five original classes nor a shared design came to "
    "both printed numbers."
)

# (artefact, setting, method, measure) -> reason
REASONS: dict[tuple[str, str, str, str], str] = {
    ("table3", "Heart", "MultiHSIC-Inc", "TPR"): _HEART,
    ("table3", "Heart", "PolyHSIC-Inc", "TPR"): _HEART,
}
