"""What a user asks of new rows: which entries are known, and which columns are wanted.

The entries of new rows are read for each view of a mixture; those that are not there are NaN.
"""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.families import BASE_MEASURES
from pymc_dpgmm.posterior.arrays.new_rows import Units, Unknown
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.names import as_text, coordinates, plain_names
from pymc_dpgmm.tables.reading import columns_as_frame, factorized, read_table
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import Table

# Stands for the unit of new rows where a function does not take it.
_NEVER = object()
# A row that is left with fewer draws than this is named in a warning.
_FEW_DRAWS = 5.0


class Column(NamedTuple):
    """A column that is asked for: its view, its position there, and its name among all that are asked for."""

    view: Any
    position: int
    name: str

    @property
    def levels(self) -> list[Any] | None:
        """The levels that codes of the column stand for, if it has categories."""
        levels: list[Any] | None = self.view.levels_of(self.position)
        return levels

    @property
    def has_cdf(self) -> bool:
        """Whether entries have a distribution function in closed form: of numbers, in most families."""
        is_number = self.view.has_data and self.levels is None
        return is_number and self.view.family.component.cdf is not None

    @property
    def is_binary(self) -> bool:
        """Whether entries are 0 or 1."""
        binary = BASE_MEASURES["BetaBernoulli"].family
        return self.view.family in (binary, binary.incomplete)


def checked_points(what: str, value: Any, must: str) -> np.ndarray:
    """Return an argument that is a finite number, or several of shape (g,).

    Raises
    ------
    ValueError
        If it is anything else. ``must`` says what it must be.
    """
    points = np.asarray(value, dtype=np.float64)
    if points.ndim > 1 or not points.size or not np.isfinite(points).all():
        raise ValueError(f"{what} must be {must}, got {value!r}")
    return points


class Question(NamedTuple):
    """New rows and what is asked of them, in the views that matter.

    Parameters
    ----------
    draws : Draws
        All draws, with only those views.
    new : list of Unknown
        The rows in each of these views.
    columns : list of Column
        What is asked for, in the order of the answers.
    known : (m, q) array
        Entries of these columns that are known and therefore not asked for; NaN where they are.
    rows : RowNames
        Names of the rows.
    is_single : bool
        Whether the user asked for one column by its name.
    knows_asked : list of str
        Columns that are asked for by their names, and have entries that are therefore not used.
    units : Units, optional
        The units of the rows, where rows of one are asked about together.
    unit_names : array, optional
        Their names.
    """

    draws: Draws
    new: list[Unknown]
    columns: list[Column]
    known: np.ndarray
    rows: RowNames
    is_single: bool
    knows_asked: list[str]
    units: Units | None = None
    unit_names: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of new rows."""
        return int(self.known.shape[0])

    def at_most(self, n_draws: int) -> "Question":
        """Return the question, asked of up to ``n_draws`` of the draws."""
        some = copy.copy(self.draws)
        some.numbers = self.draws.numbers.at_most(n_draws)
        return self._replace(draws=some)

    def warn_of_few(self, effective: np.ndarray, names: np.ndarray | None = None) -> None:
        """Warn of rows for which few draws are left, of so many of equal weight as are given (m,).

        ``names`` are those of the rows, or of units in their place.
        """
        few = np.flatnonzero(effective < _FEW_DRAWS)
        if len(few) and self.draws.numbers.n_draws >= 4 * _FEW_DRAWS:
            names = (self.row_names() if names is None else names)[few]
            warnings.warn(
                f"the known entries of the rows {listed(names.tolist())} are so unusual that only few draws of "
                "the posterior have clusters for them (see effective_draws): check these rows, or take more draws",
                UserWarning,
                stacklevel=5,
            )

    def row_names(self) -> np.ndarray:
        """Return the coordinates of the rows."""
        return np.arange(self.n_rows) if self.rows.names is None else coordinates(self.rows.names)

    def with_gaps(self) -> np.ndarray:
        """Return the numbers of the rows that lack an entry that is asked for; without units all rows."""
        if self.units is None:
            return np.arange(self.n_rows)
        lacking = [
            np.isnan(each.values[:, each.asked]).any(axis=1) for each in self.units.known if len(each.asked)
        ]
        return np.flatnonzero(np.any(lacking, axis=0))

    def of_rows(self, rows: Any) -> tuple[list[Unknown], Units | None]:
        """Return some of the rows, of whose units as much is known as of all."""
        units = None if self.units is None else self.units.of_rows(rows)
        return [each.of_rows(rows) for each in self.new], units

    def of_units(self) -> tuple[list[Unknown], Units | None, str, np.ndarray]:
        """Return one row of each unit, or all rows, and the name and coordinates of their dimension."""
        if self.units is None or self.unit_names is None:
            return self.new, None, "new_row", self.row_names()
        return *self.of_rows(self.units.firsts(self.draws.numbers.views)), "new_unit", self.unit_names


def read_question(
    draws: Draws,
    new: Any,
    of: Any,
    given: Any,
    *,
    fills_gaps: bool = True,
    with_levels: bool = True,
    keep: Collection[str] = (),
    unit: Any = _NEVER,
) -> Question:
    """Read new rows, and the columns that are asked for.

    Parameters
    ----------
    draws : Draws
    new : table, dict of tables by view, or None
        None if nothing but covariates is known.
    of : str, int, list of these, or None
        Columns or views, by default the columns that are missing somewhere.
    given : dict or None
        Covariates.
    fills_gaps : bool
        Whether entries of columns that are asked for by default count as known where they are there.
    with_levels : bool
        Whether columns of categories are asked for by default, which have no mean and no quantiles.
    keep : collection of str
        Views that are part of the question though nothing may be known of them.
    unit : (m,) array_like or None, optional
        The unit of each row; None where a user could have given it.

    Raises
    ------
    TypeError, ValueError
        If rows, columns or covariates are not those of the mixture.
    """
    rows = RowNames("the new rows")
    entries = _entries(draws, new, rows)
    if not entries:
        n_rows = _rows_given(draws, given)
    else:
        counts = {name: x.shape[0] for name, x in entries.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(f"all views must have the same number of new rows, got {counts}")
        n_rows = next(iter(counts.values()))
    if n_rows == 0:
        raise ValueError("there must be at least one new row")
    for view in draws.views:
        if view.name not in entries:
            entries[view.name] = np.full((n_rows, view.d), np.nan)
    units = None if unit is None or unit is _NEVER else read_units(draws, unit, n_rows, rows)
    if unit is None and entries and n_rows > 1 and any(view.unit is not None for view in draws.data_views):
        warnings.warn(
            f"rows of {draws.name} are of units, and each of the {n_rows} new rows is taken for a unit of its "
            "own: pass unit=, which names the unit of each row, so that rows of one tell of each other, or "
            f"unit=range({n_rows}) if they are of different ones",
            UserWarning,
            stacklevel=3,
        )
    if units is not None:
        _keep_one_row(draws, entries, units[0], units[2])
    asked = draws.chosen_columns(of) if of is not None else _missing(draws, entries, given, with_levels)
    if not asked and of is None:
        if _missing(draws, entries, given, with_levels=True):
            raise ValueError(
                "the new rows have no gaps but in categories, which have no mean and no quantiles: ask for "
                "kind='draws' or 'probability'"
            )
        raise ValueError(
            "the new rows have no gaps, so that nothing is asked for: leave columns out, or name the columns that "
            "are wanted with of= of dp.predict"
        )
    draws.refuse_powers("a prediction", [view for view in draws.views if asked.get(view.name)])
    names = draws.names_of_columns(asked)
    known = np.full((n_rows, len(names)), np.nan)
    used: list[NamedView] = []
    questions: list[Unknown] = []
    # What rows of a unit know of each other: entries of columns that are asked for too.
    every: list[Unknown] = []
    columns: list[Column] = []
    knows_asked: list[str] = []
    for view in draws.views:
        positions, values = asked.get(view.name, []), entries[view.name]
        if is_sparse(values):
            if positions:
                # Unknown entries are NaN, which a sparse matrix has no place for.
                raise NotImplementedError(
                    f"columns of {view.name} cannot be asked for in new rows that are a sparse matrix: leave "
                    "these rows out, or pass them as an array"
                )
        else:
            if fills_gaps and (of is None or units is not None):
                known[:, len(columns) : len(columns) + len(positions)] = values[:, positions]
            else:
                values = np.array(values)
                knows_asked += [names[view.name, j] for j in positions if not np.isnan(values[:, j]).all()]
                values[:, positions] = np.nan
            if not positions and np.isnan(values).all() and view.name not in keep:
                # Nothing is known of this view, and nothing is asked of it.
                continue
        columns += [Column(view, j, names[view.name, j]) for j in positions]
        used.append(view)
        of_units = [] if units is None else [(entries[view.name], every)]
        for entries_of_view, found in [(values, questions), *of_units]:
            complete = view.complete(entries_of_view, draws.given_of(view, given), rows, is_asked=bool(positions))
            found.append(Unknown(complete, np.array(positions, dtype=int)))
    if not used:
        # Nothing is known at all: the clusters have their weights.
        view = next((view for view in draws.views if _is_complete(draws, view, given)), draws.views[0])
        used.append(view)
        values = view.complete(entries[view.name], draws.given_of(view, given), rows, is_asked=False)
        every = questions = [Unknown(values, np.array([], dtype=int))]
    _warn_of_offsets(used)
    some = draws.of_views([view.name for view in used])
    question = Question(some, questions, columns, known, rows, draws.asks_for_one(of), knows_asked)
    if units is None:
        return question
    codes, label, of_data = units
    return question._replace(units=Units(codes, label, every, codes, np.arange(n_rows)), unit_names=of_data)


def read_units(draws: Draws, unit: Any, n_rows: int, rows: RowNames) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the unit of each of m new rows.

    Returns
    -------
    codes : (m,) int64 array
    label : (U,) int64 array
        Which label of the data each unit has; -1 for a new one.
    names : (U,) array

    Raises
    ------
    NotImplementedError, ValueError
        If the mixture has no units, or there is not one name for each row.
    """
    draws.refuse_atoms("a question with unit=")
    if all(view.unit is None for view in draws.data_views):
        raise ValueError(
            f"unit= is for mixtures that have units, and each row of {draws.name} is in a cluster by itself: pass "
            f"unit= to the mixture too, or leave it out here"
        )
    entries = np.asarray(rows.entries("unit", unit, "every row belongs to a unit"))
    if entries.shape != (n_rows,):
        raise ValueError(f"unit must have one entry for each new row, shape ({n_rows},), got {entries.shape}")
    codes, names = factorized("unit", entries)
    labels, dim = draws.drawn.labels, draws.row
    of_data = labels[dim].to_numpy() if dim in labels.coords else np.arange(draws.drawn.n)
    places = {as_text(name): i for i, name in enumerate(of_data.tolist())}
    label = np.array([places.get(as_text(name), -1) for name in coordinates(names).tolist()])
    return codes.astype(np.int64), label, coordinates(names)


def _keep_one_row(draws: Draws, entries: dict[str, Any], codes: np.ndarray, names: np.ndarray) -> None:
    """Keep one row of each unit in views that have one, where rows of a unit are alike there.

    Raises
    ------
    ValueError
        If they are not.
    """
    for view in draws.data_views:
        values = entries[view.name]
        if view.unit is not None:
            continue
        if is_sparse(values):
            raise NotImplementedError(
                f"{view.name} is a sparse matrix with one row for each unit: leave out unit="
            )
        values = entries[view.name] = np.array(values)
        known = ~np.isnan(values).all(axis=1)
        for unit, name in enumerate(names):
            of_unit = np.flatnonzero(known & (codes == unit))
            if len(np.unique(values[of_unit], axis=0)) > 1:
                raise ValueError(
                    f"{view.name} has one row for each unit, and the rows of {name} differ there: give it in one "
                    "row of the unit, and leave gaps in the others"
                )
            values[of_unit[1:]] = np.nan


def _warn_of_offsets(views: Sequence[NamedView]) -> None:
    """Warn if views have an offset, which new rows have not: a user's rows would be misread."""
    shifted = [view.name for view in views if view.offset is not None]
    if shifted:
        warnings.warn(
            f"{' and '.join(shifted)} is modelled less an offset, and new rows have none: what is known of them "
            "is taken, and what is asked for is answered, less their offset. Subtract it from what you pass, and "
            "add it to the answer; where it depends on variables that were drawn, add it draw by draw "
            "(kind='draws', or dp.sample_new_rows)",
            UserWarning,
            stacklevel=4,
        )


def _entries(draws: Draws, new: Any, rows: RowNames) -> dict[str, Any]:
    """Return the known entries of new rows by the names of views: (m, d) arrays with NaN, or sparse matrices."""
    if new is None:
        return {}
    known = draws.data_views
    if isinstance(new, Mapping) and not hasattr(new, "columns"):
        views = {draws.view_name(view): view for view in known} | {view.name: view for view in known}
        unknown = [key for key in new if key not in views]
        # What is called like its view and like one of its columns is the column, unless it is a table.
        are_columns = [key for key in new if _is_own_column(draws, key, views.get(key), new[key])]
        if not unknown and not are_columns:
            for key, of_view in new.items():
                _refuse_of_two_meanings(draws, key, views[key], of_view)
            return {views[key].name: _read(draws, views[key], of_view, rows) for key, of_view in new.items()}
        columns = draws.all_columns()
        if not {as_text(key) for key in new} <= set(columns):
            raise ValueError(_what_is_wrong(new, [draws.view_name(view) for view in known], columns))
        new = columns_as_frame(new)
    new = draws.as_rows(new)
    if len(known) == 1 and not (_has_columns(new) and known[0].columns_as_text):
        return {known[0].name: _read(draws, known[0], new, rows)}
    table = read_table(new, "new rows")
    if table.columns is None or table.is_vector:
        if len(known) > 1:
            raise ValueError(
                f"{draws.labels_name} has the views {[draws.view_name(view) for view in known]}, and columns of "
                "new rows without names could be those of any: give a frame, a dict of columns, or a dict of views"
            )
        draws.sole()
    return _divided(draws, table, rows)


def _is_own_column(draws: Draws, key: Any, view: NamedView | None, entries: Any) -> bool:
    """Tell whether the name of a view of several columns is also that of one of them, and entries are no table."""
    is_table = _has_columns(entries) or np.ndim(entries) > 1
    return view is not None and view.d > 1 and not is_table and as_text(key) in view.columns_as_text


def _refuse_of_two_meanings(draws: Draws, key: str, view: NamedView, entries: Any) -> None:
    """Raise ValueError for entries that may be those of a view or of another view's column: no table."""
    owners = [each for each in draws.views if as_text(key) in each.columns_as_text and each is not view]
    if owners and key != view.name and np.ndim(entries) < 2 and not _has_columns(entries):
        of_owner = draws.view_name(owners[0])
        raise ValueError(
            f"{key!r} is a view, and a column of the view {of_owner!r}: new rows with this name could be either. "
            f"Call the view {view.name!r}, or give the column in a frame, {{{of_owner!r}: frame}}"
        )


def _refuse_shared(draws: Draws, there: Sequence[str]) -> None:
    """Raise ValueError for a column that has one name in several views, and another meaning in each."""
    known = draws.data_views
    for name in there:
        owners = [view for view in known if name in view.columns_as_text]
        if len(owners) < 2:
            continue
        first, *others = (view.column_values([view.columns_as_text.index(name)], 1) for view in owners)
        if not all(np.array_equal(first, other, equal_nan=True) for other in others):
            names = [draws.view_name(view) for view in owners]
            raise ValueError(
                f"the views {listed(names)} each have a column {name!r}, which is not the same in all of them: "
                f"give new rows as a dict, {{{names[0]!r}: frame, {names[1]!r}: frame}}"
            )


def _what_is_wrong(new: Mapping[Any, Any], views: Sequence[str], columns: Sequence[str]) -> str:
    """Return the message for a dict whose names are neither all those of views nor all those of columns."""
    neither = [key for key in new if key not in views and as_text(key) not in columns]
    if not neither:
        return f"new rows must be a dict of views or a dict of columns, got one of both: {listed(new)}"
    names = f", or a dict of some of the columns {listed(columns)}" if columns else ""
    return (
        f"{listed(neither)} is no view or column: new rows must be a table, a dict of some of the views "
        f"{sorted(views)}{names}"
    )


def _has_columns(new: Any) -> bool:
    return hasattr(new, "columns") or (isinstance(new, Table) and new.columns is not None)


def _read(draws: Draws, view: NamedView, new: Any, rows: RowNames) -> Any:
    """Return the entries of new rows in one view."""
    names = view.columns_as_text
    if _has_columns(new) and names and not view.is_vector:
        of_view = read_table(new, f"new rows of {view.name}")
        there = [as_text(name) for name in plain_names(of_view.columns or ())]
        chosen = [j for j, name in enumerate(names) if name in there]
        if not chosen:
            raise ValueError(
                f"new rows of {view.name} have none of its columns {listed(names)}, only {listed(there)}"
            )
        _warn_of_unused(there, [*names, *view.left_out.values()])
        return _read_columns(view, of_view, chosen, rows)
    if _has_columns(new) and view.is_vector and view.column is None:
        # The only column of a frame, where the data had no name.
        table = read_table(new, f"new rows of {view.name}")
        new = table.of_columns(*table.columns) if table.columns is not None and len(table.columns) == 1 else table
    if draws.is_words() and getattr(new, "ndim", 1) == 2:
        raise ValueError(
            f"new rows of {view.name} must be words, of shape (m,), got {new.ndim} dimensions. For new "
            "documents use dp.held_out_log_likelihood"
        )
    return view.codes(rows.arrange(view.read_new(new)))


def _read_columns(view: NamedView, table: Table, chosen: Sequence[int], rows: RowNames) -> np.ndarray:
    """Return the entries of new rows that have some of a view's columns."""
    some, wanted = view.of_columns(chosen), [as_text(view.column_names[j]) for j in chosen]
    table = replace(table, columns=tuple(as_text(name) for name in plain_names(table.columns or ())))
    of_view = table.of_columns(wanted[0] if some.is_vector else wanted)
    read = rows.arrange(some.read_new(of_view))
    values = np.full((read.values.shape[0], view.d), np.nan)
    values[:, list(chosen)] = some.codes(read)
    return values


def _divided(draws: Draws, table: Table, rows: RowNames) -> dict[str, Any]:
    """Divide the columns of a table among the views; other views and columns are unknown."""
    there = [as_text(name) for name in plain_names(table.columns or ())]
    _refuse_shared(draws, there)
    found: dict[str, Any] = {}
    known = draws.data_views
    for view in draws.views:
        names = view.columns_as_text
        chosen = [j for j, name in enumerate(names) if name in there]
        if chosen and not view.has_data:
            raise ValueError(f"{names[chosen[0]]} is a parameter, which is never known: leave it out of new rows")
        if chosen:
            found[view.name] = _read_columns(view, table, chosen, rows)
    every = draws.all_columns()
    if not found:
        raise ValueError(
            f"new rows have none of the columns {listed(every) if every else 'of the data, which have no names'}, "
            f"only {listed(there)}"
        )
    _warn_of_unused(there, every + [name for view in known for name in view.left_out.values()])
    return found


def _warn_of_unused(there: Sequence[str], known: Sequence[str]) -> None:
    """Warn of columns of new rows that the data has not."""
    others = [name for name in there if name not in known]
    if others:
        warnings.warn(
            f"the columns {listed(others)} of the new rows are not used: they are none of {listed(known)}",
            UserWarning,
            stacklevel=6,
        )


def _rows_given(draws: Draws, given: Any) -> int:
    """Return the number of new rows of which only covariates are known."""
    for view in draws.views:
        own = draws.given_of(view, given)
        if isinstance(own, Mapping):
            for field, value in ((field, columns_as_frame(value)) for field, value in own.items()):
                if np.ndim(value) and not view.is_line(field, value):
                    return len(value)
    return 1


def _is_complete(draws: Draws, view: NamedView, given: Any) -> bool:
    """Tell whether what is given with the rows of a view is there, or not needed."""
    needs = [field for field in view.family.given if np.ndim(view.given.get(field, 1.0))]
    return not needs or draws.given_of(view, given) is not None


def _missing(draws: Draws, entries: Mapping[str, Any], given: Any, with_levels: bool) -> dict[str, list[int]]:
    """Return the columns that are missing in some row, by view."""
    found = {}
    for view in draws.views:
        values = entries[view.name]
        if is_sparse(values) or not view.is_density:
            continue
        absent = [
            j
            for j in np.flatnonzero(np.isnan(values).any(axis=0)).tolist()
            if with_levels or view.levels_of(j) is None
        ]
        if absent and (_is_complete(draws, view, given) or not np.isnan(values).all()):
            found[view.name] = absent
    return found
