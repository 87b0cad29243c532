"""The description of one feature of a table: in samples or against a response, with what is held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.views import Pair
from kernsift.report.descriptions import Description, describe_columns, describe_levels, describe_numbers, more_missing
from kernsift.report.held_fixed import AdjustedRows
from kernsift.report.number_format import NUMBERS, NumberScale, scale_of
from kernsift.report.pictures import (
    LONGEST_RESPONSE,
    as_one_number,
    feature_columns,
    present_rows,
)
from kernsift.report.response_descriptions import describe_by_level, describe_cells, describe_curve
from kernsift.report.text import shortened


def describe_samples(
    tables: Sequence[Table],
    series: tuple[str, ...],
    j: int,
    *,
    means: bool = False,
    gaps: bool = False,
    adjusted: AdjustedRows | None = None,
    views: np.ndarray | None = None,
) -> Description:
    own = tables[0].levels.get(tables[0].names[j])
    values = np.concatenate([feature_columns(table, j) for table in tables])
    codes = np.repeat(np.arange(float(len(tables))), [table.n for table in tables])
    scale, view = scale_of(tables[0].origin.get(tables[0].names[j]), values), None if views is None else views[j]
    return _describe_classes(values, codes, own, series, means, view, adjusted, j, scale, gaps)


def _describe_classes(
    values: np.ndarray,
    codes: np.ndarray,
    own: Sequence[str] | None,
    classes: Sequence[str],
    means: bool,
    view: Pair | None,
    adjusted: AdjustedRows | None,
    j: int,
    scale: NumberScale,
    gaps: bool = False,
) -> Description:
    """The values of feature j in classes, of which there are codes (n,), with whatever is held fixed."""

    def describe(values: np.ndarray, codes: np.ndarray) -> Description:
        there = present_rows(values) & ~np.isnan(codes)
        found = _describe_values(values[there], codes[there], own, classes, means, view, scale=scale)
        if gaps and own is None and values.shape[1] == 1 and len(classes) == 2:
            return more_missing(values[codes == 0, 0], values[codes == 1, 0], found, classes[-1])
        return found

    found, tried = describe(values, codes), []
    if adjusted is None:
        return found
    for column in adjusted.columns(j, "" if view is None else view.feature):
        known = codes if gaps else np.where(present_rows(column), codes, np.nan)
        rows = adjusted.chosen(known, column[:, 0] if column.shape[1] == 1 else None)
        if not len(rows):
            return replace(found, change="", where="", detail="")
        tried.append(describe(column[rows], codes[rows]))
    best = max(tried, key=lambda one: one.size)
    return replace(best, typical=found.typical, medians=found.medians, held=adjusted.words)


def describe_against(
    table: Table,
    target: np.ndarray,
    response: str,
    levels: Sequence[str] | None,
    means: bool,
    linear: bool,
    adjusted: AdjustedRows | None,
    views: np.ndarray | None,
    response_scale: NumberScale,
    j: int,
) -> Description:
    own, columns = table.levels.get(table.names[j]), feature_columns(table, j)
    scale = scale_of(table.origin.get(table.names[j]), columns)
    view: Pair | None = None if views is None else views[j]
    if levels is not None:
        named = [f"{shortened(response, LONGEST_RESPONSE)} = {level}" for level in levels]
        return replace(_describe_classes(columns, target, own, named, means, view, adjusted, j, scale), medians=())

    def by_level(numbers: np.ndarray, codes: np.ndarray) -> Description:
        there = ~np.isnan(numbers[:, 0]) & ~np.isnan(codes)
        means_only = means or linear
        return _describe_values(
            numbers[there], codes[there], None, own or (), means_only, what=response, scale=response_scale
        )

    if own is not None:
        found = by_level(target[:, None], columns[:, 0])
        if adjusted is None:
            return found
        numbers = adjusted.target
        rows = adjusted.chosen(columns[:, 0], numbers)
        return replace(by_level(numbers[rows, None], columns[rows, 0]), held=adjusted.words) if len(rows) else found
    seen = "linear" if linear else "" if view is None else view.response

    def along(values: np.ndarray, numbers: np.ndarray) -> Description:
        there = present_rows(values) & ~np.isnan(numbers)
        one, other = as_one_number(values[there], "")[0], numbers[there]
        return describe_curve(one, other, response, means=means, view=seen, scale=scale, response_scale=response_scale)

    if adjusted is None:
        return along(columns, target)
    # Two values are two classes, which weights make alike; more of them are aligned.
    two_valued = columns.shape[1] == 1 and len(np.unique(columns[present_rows(columns)])) == 2
    rows = adjusted.chosen(columns[:, 0] if two_valued else np.zeros(len(target)), adjusted.target)
    tried = [columns] if two_valued else adjusted.columns(j, "" if view is None else view.feature, classes=False)
    best = max((along(values[rows], adjusted.target[rows]) for values in tried), key=lambda one: one.size)
    return replace(best, held=adjusted.words)


def _describe_values(
    values: np.ndarray,
    target: np.ndarray,
    own: Sequence[str] | None,
    classes: Sequence[str],
    means: bool,
    view: Pair | None = None,
    what: str = "",
    scale: NumberScale = NUMBERS,
) -> Description:
    """Values in several classes, of which there are codes; `what` names a response in the levels of a feature."""
    codes, seen = target.astype(np.intp), "" if view is None else view.feature
    used = np.flatnonzero(np.bincount(codes, minlength=len(classes)))
    if len(used) == 2:
        first, second = (values[codes == level] for level in used)
        where = f"'{classes[used[1]]}'" if what else classes[used[1]]
        if own is not None:
            return describe_levels(first[:, 0].astype(np.intp), second[:, 0].astype(np.intp), own, where)
        if values.shape[1] > 1:
            return describe_columns(first, second, where, means=means)
        found = describe_numbers(first[:, 0], second[:, 0], where, means=means, view=seen, scale=scale)
        return replace(found, change=f"{what} {found.change}", medians=()) if what and found.change else found
    if own is not None:
        return describe_cells(values[:, 0].astype(np.intp), codes, own, classes)
    return describe_by_level(as_one_number(values, "")[0], codes, classes, what, means=means, view=seen, scale=scale)
