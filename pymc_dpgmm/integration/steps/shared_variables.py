"""Variables that the density of all latent rows shares, moved together with the rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.families.shared.origins import shift_mean
from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.process_density.row_terms import RowTerms
from pymc_dpgmm.integration.variables import dependents, mixture_inputs
from pymc_dpgmm.integration.variables.atoms import is_of_mixtures
from pymc_dpgmm.integration.variables.models import count_numbers, is_circular, is_itself, values_behind
from pymc_dpgmm.native.array_calls import are_same
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections
from pymc_dpgmm.sampler.hyperparameters.slices import draw_slice, learnt_width
from pymc_dpgmm.sampler.hyperparameters.translations import STEP, Directions, Place, second_differences
from pymc_dpgmm.sampler.latent_rows.following_rows import FollowingRows
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows
from pymc_dpgmm.sampler.latent_rows.shared_numbers import SharedNumbers
from pymc_dpgmm.sampler.latent_rows.translations import TranslatedRows, translate_rows

# Numbers that are moved with the rows, at most: of more, each would move rarely.
MOST_SHARED = 16
# Numbers that are drawn with the rows where NUTS would have nothing else to draw, at most.
MOST_DRAWN = 8
# Widths of slices, by variables and places.
type Widths = dict[Place, float]


def shared_variables(model: pm.Model, mixture: Variable, terms: RowTerms) -> list[Variable]:
    """Return the continuous free variables that terms of latent rows share, such as coefficients and dispersions.

    There are none if they are many numbers, or if the rows are not of double precision. Variables behind labels,
    mixtures or processes are not among them: rows and labels would have to move too. Nor are angles, whose slices
    would become longer and longer.
    """
    shared = [
        rv
        for rv in model.free_RVs
        if model.rvs_to_values[rv] in terms.inputs
        and rv.dtype == "float64"
        and not is_circular(model.rvs_to_transforms[rv])
        and not any(map(is_of_mixtures, (rv, *dependents(model, rv))))
    ]
    if not shared or mixture.dtype != "float64":
        return []
    return shared if sum(count_numbers(model, shared).values()) <= MOST_SHARED else []


def is_unbounded(model: pm.Model, rv: Variable) -> bool:
    """Tell whether any real numbers may be values of a variable, which has no transformation."""
    return rv.dtype == "float64" and model.rvs_to_transforms[rv] is None


def mean_of_base(model: pm.Model, mixture: Variable, d: int) -> Variable | None:
    """Return the variable that is the mean of a mixture's base measure and nothing else, if there is one.

    It is unbounded, the graph shows that the mean of the ``d`` columns of the rows is the variable itself, and the
    family says that its density depends on rows less this mean.
    """
    family, inputs = mixture.owner.op.layout.family, mixture_inputs(mixture)
    if family.axes.get("mu") != "d" or family.shift is not shift_mean:
        return None
    of_base = inputs.params[list(family.parameters).index("mu")]
    others = set(ancestors([v for v in inputs.in_order() if v is not of_base], blockers=model.basic_RVs))
    for mean in model.free_RVs:
        is_sole = mean not in others and dependents(model, mean) == [mixture]
        if is_itself(of_base, mean) and is_sole and is_unbounded(model, mean):
            return mean if count_numbers(model, [mean])[mean] == d else None
    return None


def flat_place(values: np.ndarray, place: tuple[int, ...]) -> int:
    """Return where a number is in the flat array."""
    return int(np.ravel_multi_index(place, values.shape)) if values.ndim else 0


def places_in(current: Mapping[str, np.ndarray]) -> list[Place]:
    """Return the places of all numbers, by variables."""
    return [(name, at) for name, values in current.items() for at in np.ndindex(values.shape)]


def draw_some(
    rng: np.random.Generator,
    current: Mapping[str, np.ndarray],
    log_density: Callable[[], float],
    log_p: float,
    widths: Widths,
    n_moved: int,
    tuning: bool,
) -> int:
    """Draw some numbers by slices, chosen at random, in arrays that a density is computed from.

    Returns at how many numbers the log density was +inf or NaN, which are impossible.

    Parameters
    ----------
    rng : numpy.random.Generator
    current : dict of arrays
        The numbers, by variables.
    log_density : callable
        Of the numbers as they are. Its last call is at the numbers as they are left.
    log_p : float
        Its value now.
    widths : dict
        Of slices, by variables and places, learnt in tuning.
    n_moved : int
    tuning : bool
    """
    places, n_impossible = places_in(current), 0
    for chosen in rng.permutation(len(places))[:n_moved]:
        name, place = places[chosen]
        values = current[name]

        def at(u: float, values: np.ndarray = values, place: tuple[int, ...] = place) -> float:
            values[place] = u
            return log_density()

        width = widths.get((name, place), 1.0)
        sliced = draw_slice(rng, at, float(values[place]), log_p, width)
        log_p, n_impossible = sliced.log_p, n_impossible + sliced.n_impossible
        if tuning:
            widths[name, place] = learnt_width(width, sliced.length)
    return n_impossible


class SharedVariables:
    """The variables that latent rows share, and how they are moved with these.

    Some may also be drawn here given the rows; another step draws the others so.

    Parameters
    ----------
    model : pm.Model
    mixture : variable
        Whose rows they are.
    shared : sequence of variables
        See :func:`shared_variables`.
    mean : variable or None
        See :func:`mean_of_base`.
    compile_kwargs : dict, optional
    drawn : sequence of variables
        Those that are drawn here, among the shared ones.

    Attributes
    ----------
    watched : list of str
        Names of the variables.
    """

    def __init__(
        self,
        model: pm.Model,
        mixture: Variable,
        shared: Sequence[Variable],
        mean: Variable | None,
        compile_kwargs: dict[str, Any] | None,
        drawn: Sequence[Variable] = (),
    ) -> None:
        self._rows = model.rvs_to_values[mixture].name
        self._mean = None if mean is None else model.rvs_to_values[mean].name
        self._names = [model.rvs_to_values[rv].name for rv in shared]
        self.watched = [rv.name for rv in shared]
        self._drawn = [model.rvs_to_values[rv].name for rv in drawn]
        # Rows move too, so that whatever depends on them counts, whether it depends on the variables or not.
        depending = [other for rv in (mixture, *shared) for other in dependents(model, rv)]
        moving = [*shared, *depending, *([] if mean is None else [mean])]
        total = model.logp(vars=list(dict.fromkeys(moving)), sum=True).astype("float64")
        inputs = values_behind(model, [total])
        self._inputs = [value.name for value in inputs]
        self._function = DirectFunction(inputs, total, **(compile_kwargs or {}))
        # What the density is computed from, in arrays that stay where they are from draw to draw.
        self._own: dict[str, np.ndarray] = {}
        self._last: tuple[list[np.ndarray], np.ndarray | None, SharedNumbers] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_own": {}, "_last": None}

    @property
    def n_impossible(self) -> int:
        """Evaluations in the last draw at which the log density was +inf or NaN."""
        return 0 if self._last is None else self._last[2].n_impossible

    def log_density(self, point: Mapping[str, np.ndarray]) -> float:
        """Return the log density of all that depends on the variables or on the rows, but for the mixture."""
        return float(self._function(*(np.asarray(point[name], order="C") for name in self._inputs)))

    def begin(self, point: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a point with arrays of its own, which change with what is drawn, until :meth:`end`."""
        for name in dict.fromkeys([*self._inputs, *self._moving]):
            given, own = np.asarray(point[name]), self._own.get(name)
            if own is None or own.shape != given.shape or own.dtype != given.dtype:
                self._own[name] = np.array(given, order="C")
            else:
                own[...] = given
        return {**point, **self._own}

    def end(self, point: dict[str, np.ndarray]) -> None:
        """Let a point have what was drawn, but for the rows."""
        point.update({name: self._own[name].copy() for name in self._moving if name != self._rows})

    @property
    def _moving(self) -> list[str]:
        return [self._rows, *self._names, *([] if self._mean is None else [self._mean])]

    def at(self, point: Mapping[str, np.ndarray], offset: np.ndarray | None) -> SharedNumbers:
        """Return the density of the numbers and the rows in a point.

        Parameters
        ----------
        point : dict
            See :meth:`begin`.
        offset : (n, d) array or None
            Of the rows of the point from those of the state.
        """
        arrays = [point[name] for name in self._inputs]
        given, kept = [*arrays, *self._function.shared], self._last
        if kept is None or kept[1] is not offset or not are_same(kept[0], given):
            entry, rows = self._function.entry(arrays), point[self._rows]
            numbers = SharedNumbers(entry, given, rows, offset, lambda: self._function(*arrays))
            kept = self._last = given, offset, numbers
        kept[2].n_impossible = 0
        return kept[2]

    def move(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        moving: MovingRows,
        numbers: SharedNumbers,
        following: FollowingRows,
        widths: Widths,
        tuning: bool,
    ) -> None:
        """Move a number, and the rows with it, in the point and in the state.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : dict
            See :meth:`begin`.
        moving : MovingRows
        numbers : SharedNumbers
        following : FollowingRows
        widths : dict
            Of slices, learnt in tuning.
        tuning : bool
        """
        current = {name: point[name] for name in self._names}
        places = places_in(current)
        name, place = places[rng.permutation(len(places))[0]]
        values, width = current[name], widths.get((name, place), 1.0)
        length = numbers.draw(rng, following, values, flat_place(values, place), width)
        if length is None:
            return
        moving.take_others(following.rows)
        if tuning:
            widths[name, place] = learnt_width(width, length)

    def translate(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        translated: TranslatedRows,
        numbers: SharedNumbers,
        reach: np.ndarray,
        directions: Directions,
        tuning: bool,
    ) -> None:
        """Move one number, and all rows by the same vector, in the point and in the state.

        Parameters
        ----------
        rng, point, numbers, tuning
            See :meth:`move`.
        translated : TranslatedRows
        reach : (d,) array
            How far rows reach.
        directions : Directions
            Learnt in tuning.
        """
        current = {name: point[name] for name in self._names}
        places = places_in(current)
        place = places[rng.integers(len(places))]
        values, at = current[place[0]], place[1]
        if tuning:
            moving = translated.moving

            def density_of_shifted(shifts: np.ndarray) -> np.ndarray:
                return moving.density(moving.rows + shifts[:, None, :]).sum(axis=1)

            steps = STEP * reach, STEP * directions.width(place)
            directions.learn(place, *second_differences(density_of_shifted, values, at, *steps))
        mean = None if self._mean is None else point[self._mean]
        translate_rows(rng, translated, numbers, values, place, mean, directions, tuning)

    def draw(
        self,
        rng: np.random.Generator,
        point: Mapping[str, np.ndarray],
        moving: MovingRows,
        numbers: SharedNumbers,
        anchor: Any,
        tuning: bool,
    ) -> None:
        """Draw the variables that no other step draws, in the point, given the rows; see :meth:`move`.

        ``anchor.axes`` are the directions, None before the first draw.
        """
        if not self._drawn:
            return
        arrays = [point[name] for name in self._drawn]
        if anchor.axes is None:
            anchor.axes = LearntDirections(sum(array.size for array in arrays))
        numbers.draw_all(rng, moving.rows, arrays, anchor.axes, tuning)
