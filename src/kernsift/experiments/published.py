"""The paper's table of the Divorce questionnaire, as printed: statement, MultiHSIC's p-value, PolyHSIC's."""

from __future__ import annotations

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
