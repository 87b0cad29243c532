"""docs/given.md, from the records of `benchmarks/given.py`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from scipy.stats import binom

from kernsift.experiments.studies import table

_HEAD = """# Beyond confounders, censored times, copies

Whether a feature tells something *beyond* age, sex or site (`given=`), whether it tells something about a censored time
until an event, and which discoveries tell the same. What follows was measured by `make given`. {ref}`The method
<given-method>` is below.

"""

_LEVELS = """## False positives given confounders

Twenty features and a response depend on one to ten confounders and on nothing else: the share of p-values at most
0.05, with its standard error. Slow tests have four of the features and up to 1,000 rows. "warned" is the share of data
sets in which kernsift notes that its regression leaves dependence on the confounders.

{rows}

In one scenario the confounders are measured with noise, half of what was measured. Then part of their
influence cannot be taken out by any method, and no test holds its level: what is given must be what confounds.

Rows with 300, and those with 1,000 and three confounders, are of this version; in the others kernsift was measured
before it searched for thresholds at which curves change.

"""

_POWER = """## Power given confounders

One feature whose noise enters the response as a line, a square or a wave, with the strength that follows, beside a
common influence of the confounders of the kind that is named. With a strength of 0 it is the level. The comparison is
with the tests whose level is not significantly above 0.07 (binomial test at 0.05): the power of the others does not
count. GCM looks for a line and nothing else; its level is too high where forests fit a curve poorly. The last column
has the power at the 0.05 quantile of the p-values without an effect, which compares tests whatever their levels. With
the true curves known, a test of a line has a power of 0.73 at 300 rows and a strength of 0.15. Rows with 1,000 and
20,000 were measured before kernsift searched for thresholds at which curves change.

{rows}

"""

_SECONDS = """## Time

Processor seconds, but for the wall clock with two cores. KCI was run earlier on the same day, beside other work.

{rows}

"""

_SURVIVAL = """## Censored responses

One normal feature x, 200 rows, and a log hazard: x / 4 ("line", also with a bathtub and a Weibull baseline hazard),
x^2 / 2 ("U"), 0.6 above 0 ("step"), 1.5 exp(-x^2) ("bump"), 1.2 above 1 ("threshold"), 1.2 beyond 1.2 on both sides
("two-sided"), 0.4 exp(-x) ("falling"), 0.35 tanh(2 x) ("saturating"), or none; then the share that is censored. The
weights of the views were chosen with the first four. Significant at 0.05:

{rows}

"""

_DISTINCT = """## Distinct features

Signals, of which the response is a function, noisy copies of each (noise 0.5 beside five signals, 1 beside three), and
as many features without any; 500 and 400 rows. Precision and recall of the signals themselves, not of their copies.
Clusters put features together whose scores are correlated under the null hypothesis: of weak copies those that a smooth
kernel finds, not those that only a narrow kernel finds, for which noise matters more. Knockoffs with a false discovery
rate of 10% select at least ten features or none:

{rows}

"""

_METHOD = """(given-method)=
## Method

Numbers are first replaced by what a regression on the confounders z leaves of them, u = x - E[x | z]: a kernel of x
would see a square of u only through the product of E[x | z] and u. An effect that changes its sign with z can leave
the distribution of u as it is, so one kernel of five is of x itself. With f and g the directions of the kernels of the
feature and of the response, the test takes the residuals r = f - E[f | z] and s = g - E[g | z], and T = |sum r s'|^2,
whose null law is a sum of chi-squares weighted by the eigenvalues of sum (r r') (x) (s s'), with the first three
moments over random signs; where rows are few, it is conservative. Where both residuals are skew, as those of rare
values and rare cases are, all products are small if the two do not meet, and the spread is raised to what it is on
average. Like all tests of conditional independence it is as good as its regressions: the product of their errors must
be small beside 1 / n. These are ridge regressions on linear terms, splines, products, kernels, on splines of the
directions of z along which the response changes most, on kernels of the pairs of confounders that explain most beyond
a sum of curves, on splines of predictions of the response from these and from curves beyond thresholds, and on the
leaves of a regression tree of it, for thresholds of confounders, with curves that differ beyond its leading thresholds
and beyond those at which curves change most; the model and the penalty are chosen by generalised
cross-validation for each direction, in which rows with large residuals count more in the degrees of freedom: where the
spread follows z, noise is not taken for a curve. A regressor of scikit-learn as `given_model=` is tried beside them,
cross-fitted. Of a category all levels count, up to 512 over the directions of the response: 103 beside a response of
numbers, 256 beside two classes; of a response the 65 commonest classes.

What is left is measured: if r still follows z in the way in which s does, r goes together with the mean of s over rows
that are near in z. That is tested with 1 to 64 neighbours, and a note names the features where it is so.

What cannot be promised: a confounder that was not measured, or measured with noise, remains one; where its value is
missing it is not held fixed either, which a note says, and `missing="drop"` leaves such rows out. A dependence on z
that no model here can follow leaves false positives: chessboards of more than two confounders, steps along curves, fast
waves along a combination of three and more, and interactions of categories with fewer than four rows per combination,
which are noted. The note on what is left finds large errors where rows have near neighbours, which among many
confounders they have not. With few values of z, `strata=` is the exact alternative: cut the confounders into bins and
permute within them. Beside `given=`, strata of at least five rows on average may have curves of their own; smaller
ones, such as pairs, have one in common.

`distinct=True` tests each discovery given the distinct ones before it, at the level that the correction asks of the
last discovery, and not above what it asks of tests one after another: with "bh", m discoveries and j distinct ones so
far alpha (j + 1) / m (Javanmard and Montanari 2018). Order and tests use the same data, so the guarantee is
approximate; the table above has what it comes to. Of a cause of two classes and 20 noisy copies of it (200 rows, 36
data sets) the distinct features are false in 0.01 of cases on average, where the cause is the first of the list.

Features that measure one cause, each with noise of its own, are not copies of each other: every one adds to what is
known of the cause, and most are distinct. With `unit=` that is so if the cause belongs to the unit and the noise to the
rows: of eight noisy measurements and six columns of noise beside a better measurement (80 units of five rows, 20 data
sets) 6.7 are distinct. With the mean of each unit as one row 0.75 are (12 data sets), as means have less noise, and
with the cause itself among the features at most 0.1 (12 and 10 data sets).
"""


def _cell(known: pd.DataFrame, name: str) -> str:
    """A share with its standard error; empty for a test that was not run."""
    if name not in known.index:
        return ""
    row = known.loc[name]
    return f"{row.value:.3f} ± {row.sd / row.trials**0.5:.3f}"


def _levels(records: pd.DataFrame) -> str:
    """Methods side by side, the share of data sets with a warning, and where kernsift is clearly above KCI."""
    methods = list(dict.fromkeys(records.method))
    lines, above, both = [], [], 0
    for (case, n, p), own in records.groupby(["case", "n", "p"], sort=False):
        known = own.set_index("method")
        cells = [_cell(known, name) for name in methods]
        row = [str(case), f"{n:,}", str(p)]
        lines.append([*row, *cells, f"{known.note['kernsift']:.2f}", str(known.trials["kernsift"])])
        if "KCI" in known.index:
            both += 1
            difference = known.value["kernsift"] - known.value["KCI"]
            if difference > 2 * (known.sd**2 / known.trials)[["kernsift", "KCI"]].sum() ** 0.5:
                above.append(f"{', '.join(row)} confounders (by {difference:.3f})")
    found = table(["case", "n", "confounders", *methods, "warned", "data sets"], lines)
    said = "; ".join(above) if above else "none"
    return f"{found}\n\nRows in which kernsift is above KCI by more than two standard errors, of {both}: {said}."


def _power(records: pd.DataFrame) -> str:
    """Methods side by side, and how far kernsift is behind the best of those whose level holds."""
    methods = list(dict.fromkeys(records.method))
    null = {
        (case.split(", ")[1], n, p): own.set_index("method")
        for (case, n, p), own in records.groupby(["case", "n", "p"], sort=False)
        if case.endswith(", 0")
    }
    lines = []
    for (case, n, p), own in records.groupby(["case", "n", "p"], sort=False):
        known, levels = own.set_index("method"), null.get((case.split(", ")[1], n, p))
        behind = ""
        if levels is not None and not case.endswith(", 0"):
            found = (levels.value * levels.trials).round()
            holds = dict(zip(levels.index, binom.sf(found - 1, levels.trials, 0.07) > 0.05, strict=True))
            valid = [name for name in methods[1:] if holds.get(name, False) and name in known.index]
            behind = f"{known.value[valid].max() - known.value['kernsift']:+.3f} ({', '.join(valid)})" if valid else "-"
        adjusted = {} if case.endswith(", 0") else known.adjusted.dropna().to_dict()
        size_adjusted = ", ".join(f"{name} {share:.3f}" for name, share in adjusted.items() if len(adjusted) > 1)
        cells = [_cell(known, name) for name in methods]
        lines.append([str(case), f"{n:,}", str(p), *cells, behind, size_adjusted])
    return table(["case", "n", "confounders", *methods, "best valid peer ahead by", "size-adjusted"], lines)


def _times(records: pd.DataFrame) -> str:
    lines = []
    for (case, n), own in records.groupby(["case", "n"], sort=False):
        known = own.set_index("method").value
        ratio = f"{known['KCI'] / known['kernsift']:,.0f}" if "KCI" in known else ""
        seconds = [f"{known[name]:.3g}" if name in known else "" for name in ("kernsift", "KCI")]
        lines.append([str(case), f"{n:,}", *seconds, ratio])
    return table(["seconds for", "n", "kernsift", "KCI", "ratio"], lines)


def _distinct(records: pd.DataFrame) -> str:
    lines = [
        [row.case, row.method, f"{row.value:.2f}", f"{row.note:.2f}", str(row.trials)] for row in records.itertuples()
    ]
    return table(["problem", "method", "precision", "recall", "data sets"], lines)


def page(folder: Path) -> str:
    """The page, with the parts that have records."""
    parts = [
        ("levels", _LEVELS, _levels),
        ("power", _POWER, _power),
        ("seconds", _SECONDS, _times),
        ("survival", _SURVIVAL, _survival),
        ("distinct", _DISTINCT, _distinct),
    ]
    text = _HEAD
    for name, section, rows in parts:
        if (folder / f"{name}.csv").exists():
            records = pd.read_csv(folder / f"{name}.csv")
            own = records[records.method.str.startswith("kernsift")].trials
            count = f"{own.min()} to {own.max()}" if own.min() < own.max() else f"{own.max()}"
            first, last = min(records.date), max(records.date)
            dates = f"on {first}" if first == last else f"from {first} to {last}"
            trials = f"Measured {dates}; kernsift on {count} data sets a row, slow tests on fewer.\n\n"
            text += section.format(rows=rows(records)) + (trials if name != "seconds" else "")
    return text + _METHOD


def _survival(records: pd.DataFrame) -> str:
    methods = list(dict.fromkeys(records.method))
    lines = []
    for case, own in records.groupby("case", sort=False):
        known = own.set_index("method")
        lines.append([str(case), *(f"{known.value[name]:.3f}" for name in methods)])
    return table(["hazard, censored", *methods], lines)
