"""The description of one feature of a table: in samples or against a response, with what is held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kernsift.data.tables import Table
from kernsift.estimators.pairs import Pair
from kernsift.report.contrasts import SEARCH_PENALTY, DescribedFeature
from kernsift.report.descriptions import Description, describe_columns, describe_levels, describe_numbers, more_missing
from kernsift.report.held_fixed import AdjustedRows, has_common_value
from kernsift.report.number_format import scale_of
from kernsift.report.pictures import (
    LONGEST_RESPONSE,
    ShownResponse,
    feature_columns,
    first_component,
    present_rows,
)
from kernsift.report.response_descriptions import describe_by_level, describe_cells, describe_curve, response_change
from kernsift.report.text import abbreviated

# A change of the first component of several columns that is not due to chance, in squared standard errors.
_CLEAR_CHANGE = 16.0


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
    name = tables[0].names[j]
    values = np.concatenate([feature_columns(table, j) for table in tables])
    codes = np.repeat(np.arange(float(len(tables))), [table.n for table in tables])
    scale = scale_of(tables[0].origin.get(name), values)
    seen = DescribedFeature(tables[0].levels.get(name), scale, means, _view_of(views, j).feature)
    return _describe_classes(values, codes, series, seen, adjusted, j, gaps)


def _view_of(views: np.ndarray | None, j: int) -> Pair:
    """The views of a feature and the response with the smallest p-value; empty names where these are not known."""
    known: Pair | None = None if views is None else views[j]
    return known or Pair("", "", 1.0)


def _describe_classes(
    values: np.ndarray,
    codes: np.ndarray,
    classes: Sequence[str],
    seen: DescribedFeature,
    adjusted: AdjustedRows | None,
    j: int,
    gaps: bool = False,
) -> Description:
    """The values of feature j in classes, of which there are codes (n,), with whatever is held fixed."""

    def describe(values: np.ndarray, codes: np.ndarray, seen: DescribedFeature = seen) -> Description:
        there = present_rows(values) & ~np.isnan(codes)
        found = _describe_values(values[there], codes[there], classes, seen)
        if not gaps or seen.levels is not None or values.shape[1] > 1:
            return found
        known = ~np.isnan(codes)
        return more_missing(values[known, 0], codes[known].astype(np.intp), classes, found)

    found, tried = describe(values, codes), []
    if adjusted is None:
        return found
    for column in adjusted.columns(j, seen.view):
        known = codes if gaps else np.where(present_rows(column), codes, np.nan)
        rows = adjusted.chosen(known, column[:, 0] if column.shape[1] == 1 else None)
        if not len(rows):
            return replace(found, change="", where="", detail="")
        tried.append(describe(column[rows], codes[rows], seen._replace(single_values=has_common_value(values))))
    best = max(tried, key=lambda one: one.size)
    return replace(best, typical=found.typical, medians=found.medians, held=adjusted.words)


def describe_against(
    table: Table,
    response: ShownResponse,
    j: int,
    *,
    means: bool,
    linear: bool,
    gaps: bool,
    adjusted: AdjustedRows | None,
    views: np.ndarray | None,
) -> Description:
    own, columns, target = table.levels.get(table.names[j]), feature_columns(table, j), response.values
    if not (present_rows(columns) & ~np.isnan(target)).any():
        return Description()
    scale, response_scale = scale_of(table.origin.get(table.names[j]), columns), scale_of(response.origin, target)
    view = _view_of(views, j)
    if response.levels is not None:
        named = [f"{abbreviated(response.name, LONGEST_RESPONSE)} = {level}" for level in response.levels]
        found = _describe_classes(
            columns, target, named, DescribedFeature(own, scale, means, view.feature), adjusted, j, gaps
        )
        there = present_rows(columns) & ~np.isnan(target)
        return replace(_naming_level(found, target[there], named), medians=())

    def by_level(numbers: np.ndarray, codes: np.ndarray, levels: Sequence[str], single_values: bool) -> Description:
        there = ~np.isnan(numbers) & ~np.isnan(codes)
        seen = DescribedFeature(None, response_scale, means or linear, single_values=single_values)
        return _describe_values(numbers[there, None], codes[there], levels, seen, response.name)

    def in_levels(codes: np.ndarray, levels: Sequence[str]) -> Description:
        quoted = [f"'{level}'" for level in levels]
        found = _naming_level(
            by_level(target, codes, levels, True), codes[~np.isnan(codes) & ~np.isnan(target)], quoted
        )
        if adjusted is None:
            return found
        numbers = adjusted.target
        rows = adjusted.chosen(codes, numbers)
        if not len(rows):
            return found
        return replace(by_level(numbers[rows], codes[rows], levels, False), held=adjusted.words)

    if own is not None:
        return in_levels(columns[:, 0], own)

    def or_where_missing(found: Description) -> Description:
        """The response where the feature is missing, if that differs more from the rest than along its values."""
        gone = (~present_rows(columns)).astype(float)
        if not gaps or columns.shape[1] > 1 or gone.min() == gone.max():
            return found
        other = in_levels(gone, ("present", "missing"))
        if not other.change or other.size - SEARCH_PENALTY <= found.size:
            return found
        return replace(other, change=f"{other.change} where missing", where="")

    def along(values: np.ndarray, numbers: np.ndarray) -> Description:
        there = present_rows(values) & ~np.isnan(numbers)
        one, other = first_component(values[there], "")[0], numbers[there]
        seen = DescribedFeature(None, scale, means, "linear" if linear else view.response)
        name = response.name if response.label == response.name else f"the first component of {response.name}"
        found = describe_curve(one, other, name, seen, response_scale)
        if columns.shape[1] > 1:
            return _along_component(found)
        return found if response.label == response.name else _if_component_shows(found)

    if adjusted is None:
        return or_where_missing(along(columns, target))
    # Two values are two classes, which are weighted to be comparable; more values are aligned.
    two_valued = columns.shape[1] == 1 and len(np.unique(columns[present_rows(columns)])) == 2
    rows = adjusted.chosen(columns[:, 0] if two_valued else np.zeros(len(target)), adjusted.target)
    tried = [columns] if two_valued else adjusted.columns(j, view.feature, classes=False)
    best = max((along(values[rows], adjusted.target[rows]) for values in tried), key=lambda one: one.size)
    return or_where_missing(replace(best, held=adjusted.words))


def _describe_values(
    values: np.ndarray,
    target: np.ndarray,
    classes: Sequence[str],
    seen: DescribedFeature,
    what: str = "",
) -> Description:
    """Values in several classes, of which there are codes; `what` names a response in the levels of a feature."""
    codes, own = target.astype(np.intp), seen.levels
    used = np.flatnonzero(np.bincount(codes, minlength=len(classes)))
    if not len(used):  # none of the rows that are shown has a value
        return Description()
    if len(used) == 2:
        first, second = (values[codes == level] for level in used)
        where = f"'{classes[used[1]]}'" if what else classes[used[1]]
        if own is not None:
            return describe_levels(first[:, 0].astype(np.intp), second[:, 0].astype(np.intp), own, where)
        if values.shape[1] > 1:
            return describe_columns(first, second, where, means=seen.means)
        found = describe_numbers(first[:, 0], second[:, 0], where, seen)
        renamed = replace(found, change=response_change(what, found.change), medians=())
        return renamed if what and found.change else found
    if own is not None:
        return describe_cells(values[:, 0].astype(np.intp), codes, own, classes)
    found = describe_by_level(first_component(values, "")[0], codes, classes, what, seen)
    return found if values.shape[1] == 1 else _along_component(found)


def _naming_level(found: Description, codes: np.ndarray, levels: Sequence[str]) -> Description:
    """The description with the name of the second of two levels before the medians or shares of both."""
    if not found.typical:
        return found
    return replace(found, typical=f"in {levels[int(codes.max())]}: {found.typical}")


def _along_component(found: Description) -> Description:
    """The description of the first component of a feature of several columns."""
    return _if_component_shows(replace(found, change=f"{found.change} along the first component"))


def _if_component_shows(found: Description) -> Description:
    """What the first component of several columns shows; the test sees all of them, so that it may show nothing."""
    if found.size >= _CLEAR_CHANGE:
        return found
    return Description("not seen in the first principal component", typical=found.typical)
