"""Priors on partitions for PyMC: labels as random variables."""

import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_dpgmm.integration.internals.pymc_internals import SymbolicRandomVariable
from pymc_dpgmm.integration.variables.models import interpreted, value_of
from pymc_dpgmm.integration.variables.partition_arguments import (
    checked_integer,
    checked_number_of_components,
    checked_positive,
    checked_rows,
    checked_scalar,
)
from pymc_dpgmm.integration.variables.partition_operations import CRPRV, MFMRV, FiniteDirichletRV, PitmanYorRV
from pymc_dpgmm.integration.variables.registered_labels import PartitionPrior, constraints_on
from pymc_dpgmm.partitions.known import n_known
from pymc_dpgmm.partitions.n_clusters import n_clusters_pmf, solve_for_n_clusters
from pymc_dpgmm.partitions.priors import (
    N_TERMS,
    GibbsType,
    chinese_restaurant,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    n_terms,
    pitman_yor,
)
from pymc_dpgmm.tables.checks import is_variable

# Largest mass that the prior on the number of components may have beyond the numbers in use, and the largest
# number of these.
_MISSING = 1e-6
_MOST_TERMS = 2**20
# How far the log probability of the last number must be below the largest one.
_DEPTH = 40.0


class CRP(PartitionPrior):
    r"""Prior on partitions: the Chinese restaurant process.

    The value is a vector with one label per row. Two rows are in the same cluster if their labels are equal.

    .. math:: p(\text{labels}) = \frac{\Gamma(\alpha)}{\Gamma(\alpha + n)} \alpha^K \prod_{k=1}^K \Gamma(n_k)

    (Ewens 1972; Antoniak 1974). This is the density of the partition and does not depend on the numbering of its
    clusters. Any labels in 0..n-1 are allowed; others have density zero. Without a mixture on the labels,
    ``pm.sample`` draws them from this prior.

    Parameters
    ----------
    name : str
        Name of the labels in the model.
    alpha : scalar or variable, > 0
        Concentration.
    n : int or variable, >= 1
        Number of rows.
    dims : str, optional
        Name of the dimension of the labels.
    known_labels : (n,) array_like, optional
        Known clusters of some rows: integers or names, with -1, None or NaN for all other rows. Rows with equal
        known labels share a cluster, and rows with different known labels do not. The numbers of clusters in a
        draw are arbitrary; the cluster of a known label is that of any row with this label.
    must_link : (n,) array_like, optional
        Rows with equal entries (integers or names) share a cluster; -1, None or NaN marks rows without such a
        constraint. Unlike the rows of one unit (see :func:`DPMixture`), each of these rows counts in the prior:
        they are several draws from the process that are known to be equal.
    initval : (n,) integer array_like, optional
        Starting labels of all chains. By default each chain starts from its own random partition, whose number of
        labels is log-uniform on 1..min(n, 50).

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     labels = dp.CRP("labels", alpha=1.0, n=10)
    >>> pm.draw(labels, random_seed=1).shape
    (10,)
    >>> dp.CRP.n_clusters_pmf(alpha=1.0, n=3).round(2)
    array([0.  , 0.33, 0.5 , 0.17])
    """

    rv_op = CRPRV()

    def __new__(cls, name: str, alpha: Any, n: Any, **kwargs: Any) -> Any:
        if is_variable(alpha):
            alpha.tag.is_concentration = True
        return super().__new__(cls, name, alpha, n, **kwargs)

    @classmethod
    def dist(cls, alpha: Any, n: Any, **kwargs: Any) -> Any:
        return cls._made([checked_positive("alpha", alpha)], n, kwargs)

    def logp(value: Any, alpha: Any, n: Any) -> Any:  # noqa: N805
        return CRP.density(value, alpha, n)

    @staticmethod
    def n_clusters_pmf(alpha: float, n: int) -> np.ndarray:
        """Return the prior probabilities of 0, 1, ..., n clusters: (n + 1,) float64 array."""
        return _pmf(chinese_restaurant(alpha), n, f"alpha must be > 0, got {alpha}")

    @staticmethod
    def alpha_for_n_clusters(expected: float, n: int) -> float:
        """Return the concentration for which ``expected`` clusters are expected among n rows."""
        return solve_for_n_clusters(chinese_restaurant, expected, checked_integer("n", n))


class PitmanYor(PartitionPrior):
    r"""Prior on partitions: the Pitman-Yor process, whose cluster sizes follow a power law.

    .. math:: p(\text{labels}) = \frac{\Gamma(\alpha + 1)}{\Gamma(\alpha + n)}
        \prod_{i=1}^{K-1} (\alpha + i \sigma) \prod_{k=1}^K \frac{\Gamma(n_k - \sigma)}{\Gamma(1 - \sigma)}

    (Pitman 1995, with discount :math:`\sigma`). A row joins a cluster of m others with weight :math:`m - \sigma`,
    and opens a cluster beside K others with weight :math:`\alpha + K \sigma`. With discount 0 this is the Chinese
    restaurant process.

    Parameters
    ----------
    name : str
        Name of the labels in the model.
    alpha : scalar or variable, > -discount
        Concentration.
    discount : scalar or variable, in [0, 1)
    n, dims, known_labels, must_link, initval
        As in :class:`CRP`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.PitmanYor.n_clusters_pmf(alpha=1.0, discount=0.5, n=3).round(2)
    array([0.  , 0.12, 0.38, 0.5 ])
    >>> round(dp.PitmanYor.alpha_for_n_clusters(expected=20, discount=0.25, n=1000), 2)
    0.93
    """

    rv_op = PitmanYorRV()

    def __new__(cls, name: str, alpha: Any, discount: Any, n: Any, **kwargs: Any) -> Any:
        return super().__new__(cls, name, alpha, discount, n, **kwargs)

    @classmethod
    def dist(cls, alpha: Any, discount: Any, n: Any, **kwargs: Any) -> Any:
        alpha, discount = checked_scalar("alpha", alpha), checked_scalar("discount", discount)
        if not is_variable(discount) and not 0 <= discount < 1:
            raise ValueError(f"discount must lie in [0, 1), got {discount}")
        if not is_variable(alpha) and alpha <= (-1 if is_variable(discount) else -discount):
            raise ValueError(f"alpha must be > -discount, got alpha = {alpha} and discount = {discount}")
        return cls._made([alpha, discount], n, kwargs)

    def logp(value: Any, alpha: Any, discount: Any, n: Any) -> Any:  # noqa: N805
        return PitmanYor.density(value, alpha, discount, n)

    @staticmethod
    def n_clusters_pmf(alpha: float, discount: float, n: int) -> np.ndarray:
        """Return the prior probabilities of 0, 1, ..., n clusters: (n + 1,) float64 array."""
        return _pmf(
            pitman_yor(alpha, discount),
            n,
            f"discount must lie in [0, 1) and alpha be > -discount, got alpha = {alpha} and discount = {discount}",
        )

    @staticmethod
    def alpha_for_n_clusters(expected: float, discount: float, n: int) -> float:
        """Return the alpha, possibly negative, for which ``expected`` clusters are expected among n rows."""
        if not 0 <= discount < 1:
            raise ValueError(f"discount must lie in [0, 1), got {discount}")
        above = solve_for_n_clusters(
            lambda above: pitman_yor(above - discount, discount), expected, checked_integer("n", n)
        )
        return above - discount


class FiniteDirichlet(PartitionPrior):
    r"""Prior on partitions: a finite mixture whose weights are Dirichlet(alpha / n_components, ...).

    With :math:`a = \alpha / m` for m components, and weights integrated out,

    .. math:: p(\text{labels}) = \frac{m!}{(m - K)!} \frac{\Gamma(\alpha)}{\Gamma(\alpha + n)}
        \prod_{k=1}^K \frac{\Gamma(n_k + a)}{\Gamma(a)}

    for a partition into K <= m clusters, summed over the components that these may be (Green and Richardson 2001;
    Sugiyama, ch. 20). As m grows, this tends to the Chinese restaurant process with concentration alpha.

    Parameters
    ----------
    name : str
        Name of the labels in the model.
    alpha : scalar or variable, > 0
        Sum of the Dirichlet parameters.
    n_components : int or integer variable, >= 1
        Number of components m. The number of clusters (components with rows) is at most m. If it is computed from
        a discrete random variable, :class:`ComponentsGibbs` draws that variable.
    n, dims, known_labels, must_link, initval
        As in :class:`CRP`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.FiniteDirichlet.n_clusters_pmf(alpha=2.0, n_components=2, n=3).round(2)
    array([0. , 0.5, 0.5, 0. ])
    """

    rv_op = FiniteDirichletRV()

    def __new__(cls, name: str, alpha: Any, n_components: Any, n: Any, **kwargs: Any) -> Any:
        return super().__new__(cls, name, alpha, n_components, n, **kwargs)

    @classmethod
    def dist(cls, alpha: Any, n_components: Any, n: Any, **kwargs: Any) -> Any:
        n_components = checked_number_of_components(n_components)
        labels = cls._made([checked_positive("alpha", alpha), n_components], n, kwargs)
        constraints = constraints_on(labels)
        if not is_variable(n_components) and constraints is not None and n_known(constraints) > n_components:
            raise ValueError(
                f"known_labels have {n_known(constraints)} clusters, but n_components is {n_components}"
            )
        return labels

    def logp(value: Any, alpha: Any, n_components: Any, n: Any) -> Any:  # noqa: N805
        return FiniteDirichlet.density(value, alpha, n_components, n)

    @staticmethod
    def n_clusters_pmf(alpha: float, n_components: int, n: int) -> np.ndarray:
        """Return the prior probabilities of 0, 1, ..., n clusters: (n + 1,) float64 array."""
        return _pmf(
            finite_dirichlet(alpha, n_components),
            n,
            f"alpha must be > 0 and n_components an integer of at least 1, got {alpha} and {n_components}",
        )

    @staticmethod
    def alpha_for_n_clusters(expected: float, n_components: int, n: int) -> float:
        """Return the alpha for which ``expected`` clusters are expected among n rows."""
        return solve_for_n_clusters(
            lambda alpha: finite_dirichlet(alpha, n_components), expected, checked_integer("n", n)
        )


class MFM(PartitionPrior):
    r"""Prior on partitions: a mixture of finite mixtures, with a prior on the number of components.

    The number of components is :math:`m \sim p`, and the weights given m are Dirichlet(gamma, ..., gamma). With
    both integrated out,

    .. math:: p(\text{labels}) = \sum_{m \ge K} p(m) \frac{m!}{(m - K)!}
        \frac{\Gamma(\gamma m)}{\Gamma(\gamma m + n)} \prod_{k=1}^K \frac{\Gamma(n_k + \gamma)}{\Gamma(\gamma)}

    (Miller and Harrison 2018, eqs 3.1 and 3.2). Unlike under a Dirichlet process, the number of clusters does not
    grow without bound as more rows arrive: it converges to the number of components.

    Parameters
    ----------
    name : str
        Name of the labels in the model.
    gamma : scalar or variable, > 0
        Dirichlet parameter of every component.
    n : int or variable, >= 1
        Number of rows.
    components : variable, optional
        Prior of the number of components: a PyMC distribution on the integers made with ``.dist``, such as
        ``pm.Poisson.dist(3)``. Its own parameters may be variables. It is conditioned on at least one component.
        By default ``pm.Geometric.dist(0.1)``, with mean 10.
    dims, known_labels, must_link, initval
        As in :class:`CRP`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range, or if the tail of ``components`` is so heavy that
        a sum over it would be cut off. Where the parameters of ``components`` are variables, the density is zero
        at such values of them: a part of the mass is beyond a million components or, if PyMC has no ``logcdf`` of
        the distribution, beyond 8 n + 1,000.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> p = dp.MFM.n_clusters_pmf(gamma=1.0, n=3, components=pm.Poisson.dist(2.0))
    >>> p.round(2)
    array([0.  , 0.56, 0.38, 0.06])
    """

    rv_op = MFMRV()

    def __new__(cls, name: str, gamma: Any, n: Any, **kwargs: Any) -> Any:
        return super().__new__(cls, name, gamma, n, **kwargs)

    @classmethod
    def dist(cls, gamma: Any, n: Any, *, components: Any = None, **kwargs: Any) -> Any:
        gamma = checked_positive("gamma", gamma)
        return cls._made([gamma, cls._log_components(components, checked_rows(n)[0])], n, kwargs)

    @staticmethod
    def _log_components(components: Any, n: Any) -> Any:
        """Log probabilities of 1, 2, ... components, up to the largest number that n rows need."""
        components = pm.Geometric.dist(0.1) if components is None else components
        scalar = is_variable(components) and components.ndim == 0
        if not scalar or components.dtype not in pm.vartypes.discrete_types:
            raise TypeError(
                "components must be a scalar distribution on the integers made with .dist, such as "
                f"pm.Poisson.dist(3), got {components!r}"
            )
        wanted = n_terms(n)
        if _is_fixed(components) and not is_variable(wanted):
            log_p, total = _log_masses(components, wanted)
            numbers, mass = interpreted([], [log_p, total])()
            # Double the range of numbers until it holds the mass of the prior.
            while wanted < _MOST_TERMS and not _holds_mass(numbers, mass):
                wanted *= 2
                log_p, total = _log_masses(components, wanted)
                numbers, mass = interpreted([], [log_p, total])()
            if mass > 1.0 - _MISSING:
                return pt.constant(numbers - np.logaddexp.reduce(numbers))
            raise ValueError(
                "the prior on the number of components has too heavy a tail: a part of its mass is beyond "
                f"{wanted} components"
            )
        # Parameters that are random may come to any values while they are sampled.
        log_p, total = _log_masses(components, _terms_that_hold(components, wanted))
        is_held = (total > 1.0 - _MISSING) & (log_p[-1] < log_p.max() - _DEPTH)
        return pt.switch(is_held, log_p - pt.logsumexp(log_p), -np.inf)

    @classmethod
    def _numeric(cls, gamma: float, n: int, components: Any) -> GibbsType | None:
        log_components = value_of(cls._log_components(components, checked_integer("n", n)))
        return mixture_of_finite_mixtures(gamma, log_components, n)

    @classmethod
    def n_clusters_pmf(cls, gamma: float, n: int, *, components: Any = None) -> np.ndarray:
        """Return the prior probabilities of 0, 1, ..., n clusters: (n + 1,) float64 array."""
        return _pmf(cls._numeric(gamma, n, components), n, f"gamma must be > 0, got {gamma}")

    @classmethod
    def gamma_for_n_clusters(cls, expected: float, n: int, *, components: Any = None) -> float:
        """Return the gamma for which ``expected`` clusters are expected among n rows."""
        prior = cls._numeric(1.0, n, components)
        assert prior is not None
        return solve_for_n_clusters(
            lambda gamma: prior._replace(discount=-gamma), expected, checked_integer("n", n)
        )

    def logp(value: Any, gamma: Any, log_components: Any, n: Any) -> Any:  # noqa: N805
        return MFM.density(value, gamma, log_components, n)


def _pmf(prior: GibbsType | None, n: int, otherwise: str) -> np.ndarray:
    if prior is None:
        raise ValueError(otherwise)
    return n_clusters_pmf(prior, checked_integer("n", n))


def _log_masses(components: Any, wanted: Any) -> tuple[Any, Any]:
    """Log probabilities of 1, 2, ..., ``wanted`` components, and the mass of all these and of smaller numbers."""
    log_p = pm.logp(components, pt.arange(1, wanted + 1)).astype("float64")
    smaller = pm.logp(components, pt.arange(-N_TERMS, 1)).astype("float64")
    return log_p, pt.exp(log_p).sum() + pt.exp(smaller).sum()


def _terms_that_hold(components: Any, least: Any) -> Any:
    """Return a number of terms that holds the mass of a distribution at any parameters, as far as it is known."""
    ends = 2 ** np.arange(int(math.log2(_MOST_TERMS)) - 1)
    try:
        held = pt.ge(pt.exp(pm.logcdf(components, pt.constant(ends))), 1.0 - 1e-12)
    except NotImplementedError:
        # PyMC has no distribution function of some distributions, such as those that users write.
        return least
    first = pt.switch(held.any(), pt.constant(ends)[pt.argmax(held)], ends[-1])
    # Far beyond where nothing seems to be missing, so that the last terms do not matter.
    return pt.maximum(least, 4 * first)


def _holds_mass(log_p: np.ndarray, total: float) -> bool:
    """Tell whether all but a negligible part of a distribution's mass is in the range."""
    return total > 1.0 - _MISSING and bool(log_p[-1] < log_p.max() - _DEPTH)


def _is_fixed(distribution: Any) -> bool:
    """Tell whether a distribution's parameters depend on no random variable and no data."""
    behind = list(ancestors([distribution]))
    # The components of a mixture are distributions, and no random parameters.
    parts = {
        part
        for a in behind
        if a.owner is not None and isinstance(a.owner.op, SymbolicRandomVariable)
        for part in a.owner.inputs
        if part.name is None
    }
    return not any(
        isinstance(a.type, pt.TensorType)
        and (isinstance(a, SharedVariable) or (a.owner is not None and isinstance(a.owner.op, RandomVariable)))
        for a in behind
        if a is not distribution and a not in parts
    )
