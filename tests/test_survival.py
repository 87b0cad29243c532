"""Censored responses: log-rank scores against coin's values and closed forms, and what is taken as such a response."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from kernsift import InputError, SelectHSIC, relate
from kernsift.data.survival import logrank_scores

# Malignant glioma (Grana et al. 2002), as in R's coin: time in months, event, histology (3: grade III), control group.
GLIOMA = np.array(
    [
        *([53, 1, 3, 0], [28, 0, 3, 0], [69, 0, 3, 0], [58, 0, 3, 0], [54, 0, 3, 0], [25, 1, 3, 0], [51, 0, 3, 0]),
        *([61, 0, 3, 0], [57, 0, 3, 0], [57, 0, 3, 0], [50, 0, 3, 0], [43, 0, 4, 0], [20, 1, 4, 0], [14, 1, 4, 0]),
        *([36, 0, 4, 0], [59, 0, 4, 0], [31, 1, 4, 0], [14, 1, 4, 0], [36, 1, 4, 0], [34, 1, 3, 1], [32, 1, 3, 1]),
        *([9, 1, 3, 1], [19, 1, 3, 1], [50, 0, 3, 1], [48, 0, 3, 1], [8, 1, 4, 1], [8, 1, 4, 1], [11, 1, 4, 1]),
        *([12, 1, 4, 1], [15, 1, 4, 1], [5, 1, 4, 1], [8, 1, 4, 1], [8, 1, 4, 1], [6, 1, 4, 1], [14, 1, 4, 1]),
        *([13, 1, 4, 1], [25, 1, 4, 1]),
    ],
    dtype=float,
)


def _standardised(scores, group, strata):
    """The linear statistic of the group's scores over permutations within strata."""
    total = mean = variance = 0.0
    for stratum in np.unique(strata):
        own = strata == stratum
        share = group[own].mean()
        total += scores[own] @ group[own]
        mean += scores[own].mean() * group[own].sum()
        variance += scores[own].var(ddof=1) * share * (1 - share) * own.sum()
    return (total - mean) / np.sqrt(variance)


@pytest.mark.parametrize(("histology", "z", "exact"), [(3, -2.1711, 0.02877), (4, -3.2215, 0.0001588)])
def test_glioma_agrees_with_coin(histology, z, exact):
    """`logrank_test(Surv(time, event) ~ group)` of coin, asymptotic and exact; its scores have the opposite sign."""
    time, event, _, group = GLIOMA[GLIOMA[:, 2] == histology].T
    scores = -logrank_scores(time, event == 1)
    assert abs(_standardised(scores, group, np.zeros(len(group))) - z) < 5e-5
    size = int(group.sum())
    sums = np.array([scores[list(rows)].sum() for rows in itertools.combinations(range(len(scores)), size)])
    away = np.abs(sums - scores.mean() * size) >= abs(scores @ group - scores.mean() * size) - 1e-9
    assert abs(away.mean() - exact) < 5e-6
    # With a linear kernel the statistic is z^2, whose law is fitted to three exact moments: with 17 and 20 rows it is
    # nearer to the exact test than the chi-square law is.
    found = relate(group[:, None], (time, event), kernel="linear", random_state=0)
    limit = abs(norm.isf(2 * norm.sf(abs(z))) - norm.isf(exact))
    assert abs(norm.isf(found.pvalues[0]) - norm.isf(exact)) < max(limit, 0.05)


def test_stratified_glioma_agrees_with_coin():
    """coin ranks all rows together and permutes within strata; here a stratum has its own hazard by default."""
    time, event, histology, group = GLIOMA.T
    scores = -logrank_scores(time, event == 1)
    assert abs(_standardised(scores, group, histology) - -3.6704) < 5e-5
    own = logrank_scores(time, event == 1, histology)
    for stratum in (3, 4):
        rows = histology == stratum
        assert np.allclose(own[rows], logrank_scores(time[rows], event[rows] == 1))
    expected = 2 * norm.sf(abs(_standardised(own, group, histology)))
    found = relate(group[:, None], (time, event), strata=histology, kernel="linear", random_state=0)
    assert abs(norm.isf(found.pvalues[0]) - norm.isf(expected)) < 0.25


def test_sums_of_scores_are_events_less_expected_events():
    """R: d <- survdiff(Surv(time, event) ~ group + strata(histology), data = glioma); d$obs - d$exp (survival)."""
    time, event, histology, group = GLIOMA.T
    scores, within = logrank_scores(time, event == 1), logrank_scores(time, event == 1, histology)
    control = group == 1
    assert scores[control].sum() == pytest.approx(8.86946226679, rel=1e-10)
    found = [within[control & (histology == stratum)].sum() for stratum in (3, 4)]
    assert sorted(found) == pytest.approx([2.51019984917, 6.07460463513], rel=1e-10)


def test_scores_of_tied_times():
    """Of five rows two have their event at time 2, when a third is censored: the hazard there is 2 / 4."""
    scores = logrank_scores(np.array([1.0, 2.0, 2.0, 2.0, 3.0]), np.array([1, 1, 1, 0, 1]) == 1)
    assert np.allclose(scores, [1 - 1 / 5, 1 - 0.7, 1 - 0.7, -0.7, 1 - 1.7])
    assert abs(scores.sum()) < 1e-12


def test_scores_without_censoring_are_savage_scores():
    time = np.random.default_rng(0).exponential(size=9)
    expected = [1 - sum(1 / (9 - j) for j in range(rank + 1)) for rank in np.argsort(np.argsort(time))]
    assert np.allclose(logrank_scores(time, np.ones(9, dtype=bool)), expected)


def _trial(rng, n, hazard, censored=0.3):
    """Exponential times with this hazard for a normal feature, about this share censored."""
    x = rng.normal(size=n)
    time = rng.exponential(size=n) / hazard(x)
    limit = rng.exponential(size=n) * np.quantile(time, 1 - censored) * 1.2
    return x, np.minimum(time, limit), time <= limit


def _power(hazard, n, trials, seed):
    found = 0
    for trial in range(trials):
        x, time, event = _trial(np.random.default_rng([seed, trial]), n, hazard)
        found += relate(x[:, None], (time, event), random_state=0).pvalues[0] <= 0.05
    return found / trials


def test_u_shaped_risk_is_found():
    """A power of 0.98 with 200 rows is wanted, where a Cox model has 0.12."""
    assert _power(lambda x: np.exp(x**2 / 2), 200, 40, 1) > 0.98 - 3.5 * np.sqrt(0.02 * 0.98 / 40)


def test_proportional_hazards_are_found_as_by_cox():
    """Cox's model has a power of 0.80 here, and at least 0.74 is wanted."""
    assert _power(lambda x: np.exp(x / 4), 200, 80, 2) > 0.74 - 3 * np.sqrt(0.75 * 0.25 / 80)


@pytest.mark.parametrize("censored", [0.2, 0.8])
def test_level_under_censoring(censored):
    pvalues = []
    for trial in range(15):
        rng = np.random.default_rng([3, trial])
        _, time, event = _trial(rng, 150, np.ones_like, censored)
        pvalues.append(relate(rng.normal(size=(150, 8)), (time, event), random_state=0).all_pvalues)
    assert np.mean(np.concatenate(pvalues) <= 0.05) < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 120)


def test_level_with_censoring_that_depends_on_a_stratum():
    """Censoring and the feature differ between two sites: only strata= keeps the level."""
    within, across = [], []
    for trial in range(20):
        rng = np.random.default_rng([4, trial])
        site = rng.integers(2, size=200)
        time, limit = rng.exponential(size=200) / (1 + 4 * site), rng.exponential(size=200) * np.where(site, 0.3, 3.0)
        X, y = rng.normal(size=(200, 4)) + site[:, None], (np.minimum(time, limit), time <= limit)
        within.append(relate(X, y, strata=site, correction=None, random_state=0).rejected.mean())
        across.append(relate(X, y, correction=None, random_state=0).rejected.mean())
    assert np.mean(within) < 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 40)
    assert np.mean(across) > 0.3


@pytest.fixture
def trial():
    x, time, event = _trial(np.random.default_rng(5), 120, lambda x: np.exp(x))
    return pd.DataFrame({"risk": x, "noise": np.random.default_rng(6).normal(size=120), "time": time, "event": event})


def test_forms_of_a_censored_response(trial):
    named = relate(trial, ("time", "event"), random_state=0)
    assert named.names == ("risk", "noise")
    assert named.rejected.tolist() == [True, False]
    features = trial[["risk", "noise"]]
    structured = np.array(list(zip(trial.event, trial.time, strict=True)), dtype=[("event", bool), ("time", float)])
    words = trial.assign(event=np.where(trial.event, "dead", "censored"))
    forms = [
        relate(features, structured, random_state=0),
        relate(features, (trial.time, trial.event), random_state=0),
        relate(features, (trial.time.to_numpy(), trial.event.to_numpy().astype(int)), random_state=0),
        relate(trial, ["time", "event"], response="censored", random_state=0),
        relate(words, ("time", "event"), random_state=0),
    ]
    for form in forms:
        assert np.allclose(form.all_pvalues, named.all_pvalues)
    selector = SelectHSIC(random_state=0).fit(features, structured)
    assert selector.get_feature_names_out().tolist() == ["risk"]
    pair = (trial.time.to_numpy(), trial.event.to_numpy(int))
    for X, y in ((features.to_numpy(), structured), (features, pair), (features.to_numpy(), pair)):
        assert SelectHSIC(random_state=0).fit(X, y).support_.tolist() == [True, False]


def test_rows_without_a_time_are_left_out(trial):
    gaps = trial.assign(time=trial.time.where(np.arange(120) % 3 > 0))
    found = relate(gaps, ("time", "event"), random_state=0)
    kept = relate(trial[np.arange(120) % 3 > 0], ("time", "event"), random_state=0)
    assert np.allclose(found.all_pvalues, kept.all_pvalues)


def test_confounders_of_a_censored_response():
    """A marker that only follows age is no news about survival beyond age."""
    rng = np.random.default_rng(7)
    age, time, event = _trial(rng, 300, lambda x: np.exp(x))
    X = (age + 0.7 * rng.normal(size=300))[:, None]
    assert relate(X, (time, event), random_state=0).rejected[0]
    assert relate(X, (time, event), given=age, random_state=0).pvalues[0] > 0.01


def test_a_time_next_to_an_event_is_noted(trial):
    assert any("('time', 'event')" in note for note in relate(trial, "time", random_state=0).notes)
    for time, event in (("OS_MONTHS", "OS_STATUS"), ("survivalTime", "deathEvent"), ("Survival in days", "Status")):
        notes = relate(trial.rename(columns={"time": time, "event": event}), time, random_state=0).notes
        assert any(f"y=({time!r}, {event!r})" in note for note in notes)
    assert not any("look like" in note for note in relate(trial, ("time", "event"), random_state=0).notes)


@pytest.mark.parametrize(
    ("change", "y", "message"),
    [
        ({"event": 2}, ("time", "event"), "y: the event of a censored response must be truth values"),
        ({"event": 0}, ("time", "event"), "y: at least one event is needed"),
        ({"time": -1.0}, ("time", "event"), "must not be negative"),
        ({"time": "late"}, ("time", "event"), "must be numbers"),
        ({"entry": 0.0}, ["entry", "time", "event"], "left truncation"),
        ({"entry": 0.0}, ("entry", "time", "event"), "left truncation"),
        ({}, ("time", "evnt"), "did you mean 'event'"),
    ],
)
def test_what_is_no_censored_response(trial, change, y, message):
    with pytest.raises(InputError, match=message):
        relate(trial.assign(**change), y, response="censored" if isinstance(y, list) else "auto")


def test_structured_arrays_with_an_entry_time_are_refused(trial):
    fields = [("event", bool), ("entry", float), ("time", float)]
    y = np.array([(event, 0.0, time) for event, time in zip(trial.event, trial.time, strict=True)], dtype=fields)
    with pytest.raises(InputError, match="left truncation"):
        relate(trial[["risk"]], y)


def test_rows_of_a_unit_count_as_one():
    """Columns are constant within units, so that p-values do not depend on how many rows a unit has."""
    rng = np.random.default_rng(20)
    X, time, event = rng.normal(size=(30, 4)), rng.exponential(size=30), rng.random(30) < 0.7
    for stratum in (np.zeros(30), np.arange(30) // 10):
        pvalues = []
        for sizes in (np.full(30, 2), rng.integers(1, 30, size=30)):
            unit = np.repeat(np.arange(30), sizes)
            design = {"unit": unit, "strata": stratum[unit]}
            found = relate(X[unit], (time[unit], event[unit]), bandwidth=1.0, random_state=0, **design)
            pvalues.append(found.all_pvalues)
        assert np.allclose(*pvalues)


def test_a_stratum_without_events_is_used_for_nothing():
    """Its scores are all 0; those of the other have 4! orders."""
    rng = np.random.default_rng(21)
    event, stratum = np.repeat([0, 1], [8, 4]), np.repeat(["a", "b"], [8, 4])
    result = relate(rng.normal(size=(12, 1)), (rng.permutation(12) + 1.0, event), strata=stratum, random_state=0)
    assert "The response is constant in 1 of 2 strata ('a'); its 8 rows carry no information." in result.notes
    assert "4 rows in 1 stratum; the smallest possible p-value is 0.042." in result.notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet", None])
@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"time": "number", "status": [0, 1]}, "y=('time', 'status')"),
        ({"survival_days": "number", "Event": ["no", "yes"]}, "y=('survival_days', 'Event')"),
        ({"time": "number", "death": [True, False]}, "y=('time', 'death')"),
        ({"OS_MONTHS": "number", "OS_STATUS": ["0:LIVING", "1:DECEASED"]}, "y=('OS_MONTHS', 'OS_STATUS')"),
        ({"OverTime": ["No", "Yes"], "MaritalStatus": ["Single", "Married", "Divorced"]}, None),
        ({"entry.time": "number", "death.time": "number"}, None),
        ({"time": "number", "marital.status": [1, 2, 3, 4]}, None),
        ({"Time": "number", "Status": ["bad", "good"]}, None),
        ({"time": "number", "death.time": "number", "status": [1, 2]}, "y=('time', 'status')"),
    ],
)
def test_values_tell_a_time_and_an_event(
    data: dict[str, Any], hint: str | None, suffix: str | None, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    columns = {
        name: rng.exponential(size=60).round(3) if values == "number" else np.resize(values, 60)
        for name, values in data.items()
    }
    frame = pd.DataFrame({"x": rng.normal(size=60), **columns})
    table: Any = frame
    if suffix is not None:
        table = tmp_path / f"trial{suffix}"
        (frame.to_csv if suffix == ".csv" else frame.to_parquet)(table, index=False)
    for response in ("x", *data):
        notes = relate(table, response, random_state=0).notes
        assert [note.partition("response pass ")[2] for note in notes if "look like a time" in note] == (
            [f"{hint}."] if hint else []
        )


def test_events_and_censored_times_are_counted() -> None:
    rng = np.random.default_rng(0)
    X, time, event = rng.normal(size=(60, 1)), rng.exponential(size=60), np.arange(60) % 4 > 0
    time[0], X[1] = np.nan, np.nan
    (note,) = [one for one in relate(X, (time, event), random_state=0).notes if "event" in one]
    assert note.startswith("45 of 59 times end with an event, the others are censored; the risk score is the log-rank")
    (note,) = [one for one in relate(X, (time, np.ones(60)), random_state=0).notes if "event" in one]
    assert note.startswith("59 of 59 times end with an event; the risk score")
