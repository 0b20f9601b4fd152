"""Priors on partitions for PyMC: labels as random variables."""

import inspect
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.tensor.random.op import RandomVariable

from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.named_rows import coords_of, note_rows
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, LabelsRV, as_numbers, partition_sizes
from pymc_dpgmm.integration.variables.records import add_record, is_random, stored, with_gamma_law
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.partitions.known import allow, draw_constrained_start, make_constraints, n_known
from pymc_dpgmm.partitions.priors import (
    LAST_SHARE,
    N_TERMS,
    GibbsType,
    chinese_restaurant,
    draw_partition,
    draw_start,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    n_clusters_pmf,
    n_terms,
    pitman_yor,
    solve_for_n_clusters,
)
from pymc_dpgmm.tables.checks import is_variable, without_dims
from pymc_dpgmm.tables.rows import Rows

# Largest mass that the prior on the number of components may have beyond the numbers in use, and the largest
# number of these.
_MISSING = 1e-6
_MOST_TERMS = 2**20
# Arguments that are constraints on the partition.
_KNOWN = ("known_labels", "must_link")
# Labels of at most this many rows are stored in two bytes each.
_MOST_ROWS_INT16 = 32_767


class RandomStartRV(LabelsMixtureRV):
    """Over-dispersed starting labels: see :func:`pymc_dpgmm.partitions.priors.draw_start`.

    The parameters are the largest number of clusters, and n or constraints.
    """

    name = "random_start"
    signature = "(),()->(n)"
    dtype = "int64"

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (_n_rows(dist_params[-1]),)

    def rng_fn(self, rng: np.random.Generator, most: Any, n: Any, size: Any) -> np.ndarray:
        if np.ndim(n) == 2:
            return draw_constrained_start(rng, np.asarray(n), float(most))
        return draw_start(rng, int(n), float(most))


# Priors on partitions by their names in records of results.
PRIORS: dict[str, "type[PartitionRV]"] = {}


class PartitionRV(LabelsRV):
    """Labels of n rows from a prior on partitions.

    The last parameter is n, or constraints on n rows (2, n): see :mod:`pymc_dpgmm.partitions.known`. Constraints
    set the density of other partitions to zero and do not renormalize it, because they are data.
    """

    dtype = "int64"
    # Names of the parameters, all but the last.
    fields: tuple[str, ...]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "fields" in cls.__dict__:
            PRIORS[cls.name] = cls

    def make_node(self, rng: Any, size: Any, *dist_params: Any) -> Apply:
        if np.ndim(dist_params[-1]) != self.ndims_params[-1]:
            op = type(self)(dtype=self.dtype, inplace=self.inplace, **_signature_with(True, self.signature))
            return op.make_node(rng, size, *dist_params)
        return super().make_node(rng, size, *dist_params)

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (_n_rows(dist_params[-1]),)

    def prior(self, *params: Any) -> GibbsType | None:
        """Return the prior with numeric parameters, of which n is the last; None outside their support."""
        raise NotImplementedError

    def log_eppf(self, sizes: Any, n: Any, *params: Any) -> Any:
        """Return the log probability of a partition of n rows into clusters of some sizes, as a variable."""
        raise NotImplementedError

    def most_clusters(self, *params: Any) -> Any:
        """Return the number of clusters that there can be at most, a number or a variable; n is left out."""
        return np.inf

    def rng_fn(self, rng: np.random.Generator, *arguments: Any) -> np.ndarray:
        *params, size = arguments
        if self.ndims_params[-1] == 2:
            raise NotImplementedError(
                "draws from a prior on partitions with known_labels or must_link are not supported; leave these "
                "out for draws from the prior"
            )
        n = int(np.ravel(params[-1])[0])
        if size is None:
            return self._draw(rng, params, n)
        core = [np.broadcast_to(p, (*size, *np.shape(p)[np.ndim(p) - k :])) for p, k in self._with_ndims(params)]
        draws = np.empty((*size, n), dtype=np.int64)
        for index in np.ndindex(*size):
            draws[index] = self._draw(rng, [p[index] for p in core], n)
        return draws

    def _with_ndims(self, params: Any) -> Any:
        return zip(params, self.ndims_params, strict=True)

    def _draw(self, rng: np.random.Generator, params: Any, n: int) -> np.ndarray:
        numbers = [*as_numbers(params[:-1]), n]
        prior = self.prior(*numbers)
        if prior is None:
            names = ", ".join(str(p) for p in numbers[:-1])
            raise ValueError(f"the parameters of {self.name} must be inside their support, got {names}")
        return draw_partition(rng, prior, n)


class CRPRV(PartitionRV):
    """Labels from a Chinese restaurant process."""

    name = "CRP"
    fields = ("alpha",)
    signature = "(),()->(n)"
    _print_name = ("CRP", "\\operatorname{CRP}")

    def prior(self, alpha: float, n: int) -> GibbsType | None:
        return chinese_restaurant(alpha)

    def log_eppf(self, sizes: Any, n: Any, alpha: Any) -> Any:
        return _two_parameter_log_eppf(sizes, n, alpha, 0.0, alpha > 0)


class PitmanYorRV(PartitionRV):
    """Labels from a Pitman-Yor process."""

    name = "PitmanYor"
    fields = ("alpha", "discount")
    signature = "(),(),()->(n)"
    _print_name = ("PitmanYor", "\\operatorname{PitmanYor}")

    def prior(self, alpha: float, discount: float, n: int) -> GibbsType | None:
        return pitman_yor(alpha, discount)

    def log_eppf(self, sizes: Any, n: Any, alpha: Any, discount: Any) -> Any:
        inside = (discount >= 0) & (discount < 1) & (alpha > -discount)
        return _two_parameter_log_eppf(sizes, n, alpha, discount, inside)


class FiniteDirichletRV(PartitionRV):
    """Labels of a finite mixture with symmetric Dirichlet weights."""

    name = "FiniteDirichlet"
    fields = ("alpha", "n_components")
    signature = "(),(),()->(n)"
    _print_name = ("FiniteDirichlet", "\\operatorname{FiniteDirichlet}")

    def prior(self, alpha: float, n_components: float, n: int) -> GibbsType | None:
        return finite_dirichlet(alpha, n_components)

    def log_eppf(self, sizes: Any, n: Any, alpha: Any, n_components: Any) -> Any:
        m = pt.maximum(n_components, 1)
        inside = (alpha > 0) & (n_components >= 1)
        return _two_parameter_log_eppf(sizes, n, alpha, -alpha / m, inside, most=m)

    def most_clusters(self, *params: Any) -> Any:
        _, n_components = params
        return n_components.astype("float64")


class MFMRV(PartitionRV):
    """Labels of a mixture of finite mixtures."""

    name = "MFM"
    fields = ("gamma", "log_components")
    signature = "(),(l),()->(n)"
    _print_name = ("MFM", "\\operatorname{MFM}")

    def prior(self, gamma: float, log_components: np.ndarray, n: int) -> GibbsType | None:
        return mixture_of_finite_mixtures(gamma, log_components, n)

    def log_eppf(self, sizes: Any, n: Any, gamma: Any, log_components: Any) -> Any:
        safe = pt.switch(gamma > 0, gamma, 1.0)
        n_clusters = pt.maximum(sizes.shape[0], 1)
        # The same terms as in pymc_dpgmm.partitions.priors.
        reach = pt.lt(pt.cumsum(pt.exp(log_components)), 1.0 - 1e-12).sum()
        log_p = log_components[n_clusters - 1 : 8 * n_clusters + N_TERMS + 4 * reach - 1]
        m = n_clusters + pt.arange(log_p.shape[0])
        terms = log_rising(m - n_clusters + 1.0, n_clusters) - log_rising(safe * m, n) + log_p
        whole = Assert("the sum over the number of components was cut off: its prior has too heavy a tail")
        cut = terms[-1] > terms.max() + np.log(LAST_SHARE)
        log_v = n_clusters * pt.log(safe) + whole(pt.logsumexp(terms), ~cut)
        return _gibbs_type_logp(sizes, log_v, -safe, gamma > 0)

    def most_clusters(self, *params: Any) -> Any:
        _, log_components = params
        possible = pt.switch(pt.isinf(log_components), 1, pt.arange(1, log_components.shape[0] + 1))
        return possible.max().astype("float64")


class PartitionPrior(pm.Discrete):
    """Base class of the priors on partitions, which checks rows and starts.

    The value is a vector of labels, one per row; two rows are in one cluster if their labels agree. The density
    is that of the partition, whatever names its clusters have, so any labels in 0..n-1 are allowed; others have
    density zero.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The signature names the shared arguments, so that users find them.
        keyword = inspect.Parameter.KEYWORD_ONLY
        _, *parameters = inspect.signature(cls.__new__).parameters.values()
        parameters = [p for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters += [p for p in inspect.signature(cls.dist).parameters.values() if p.kind is keyword]
        names = ("dims", "known_labels", "must_link", "initval")
        shared = [inspect.Parameter(name, keyword, default=None) for name in names]
        cls.__signature__ = inspect.Signature([*parameters, *shared])

    @classmethod
    def density(cls, value: Any, *params: Any) -> Any:
        """Return the log density of labels; the last of the parameters is n, or constraints on n rows."""
        *parameters, n = params
        # The sizes are empty where the density is zero.
        sizes = partition_sizes(value) if n.ndim == 0 else partition_sizes(value, n)
        return cls.rv_op.log_eppf(sizes, value.shape[0], *parameters)

    def __new__(cls, name: str, *args: Any, dims: Any = None, initval: Any = None, **kwargs: Any) -> Any:
        n = kwargs["n"] if "n" in kwargs or not args else args[-1]
        rows = Rows("the labels", coords=coords_of(pm.modelcontext(kwargs.get("model")), dims))
        kwargs |= {key: rows.entries(key, kwargs[key]) for key in _KNOWN if key in kwargs}
        initval = start_of_rows(rows, initval)
        if initval is not None and not isinstance(initval, str):
            constraints = _constraints(n, kwargs.get("known_labels"), kwargs.get("must_link"))
            initval = checked_start(initval, n, constraints).astype(_checked_rows(n)[1])
        labels = super().__new__(cls, name, *args, dims=dims, initval=initval, **kwargs)
        note_rows(labels, rows)
        start = {"initval": None if isinstance(initval, str) else initval}
        note_lengths(labels, start | {key: kwargs.get(key) for key in _KNOWN})
        _add_record(labels)
        return labels

    @classmethod
    def _made(cls, params: list[Any], n: Any, kwargs: dict[str, Any]) -> Any:
        rows = Rows("the labels")
        known = [rows.entries(key, kwargs.pop(key, None)) for key in _KNOWN]
        constraints = _constraints(n, *known)
        n, dtype = _checked_rows(n)
        kwargs.pop("shape", None)
        labels = super().dist(
            [*params, n if constraints is None else pt.constant(constraints)], dtype=dtype, **kwargs
        )
        note_rows(labels, rows)
        return labels


def start_of_rows(rows: Rows, initval: Any) -> Any:
    """Return starting labels in the order of the rows; strings, which PyMC interprets, are returned unchanged."""
    return initval if isinstance(initval, str) else rows.entries("initval", initval)


def register_labels(model: pm.Model, name: str, labels: Any, dims: Any, initval: Any) -> Any:
    """Add labels made with ``.dist`` to a model."""
    rows = Rows("the labels", coords=coords_of(model, dims))
    noted = labels.tag.rows.names
    if noted is not None and rows.order("known_labels or must_link in prior=", noted) is not None:
        raise ValueError(
            "known_labels or must_link in prior= has the names of the rows in another order than the coords of "
            "the model: put it into the order of the coords"
        )
    initval = start_of_rows(rows, initval)
    if initval is not None and not isinstance(initval, str):
        initval = checked_start(initval, fixed_rows(labels), constraints_on(labels)).astype(labels.dtype)
    labels = model.register_rv(labels, name, dims=dims, initval=initval, default_transform=None)
    note_rows(labels, rows)
    _add_record(labels)
    return labels


def _add_record(labels: Any) -> None:
    """Store the record of labels, with which their draws are read."""
    model = pm.modelcontext(None)
    add_record(model, labels.name, prior_record(model, labels, labels.name))


def prior_record(model: pm.Model, labels: Any, name: str) -> dict[str, Any]:
    """Return the record of labels under a prior on partitions."""
    parameters = {}
    for field, value in prior_parameters(labels).items():
        if value.ndim == 0:
            parameters[field] = with_gamma_law(stored(model, value, f"{name}_{field}"), value)
        elif is_random(value):
            parameters[field] = None
        else:
            # Probabilities of numbers of components. Negligible ones at the end are left out.
            numbers = value.eval()
            parameters[field] = stored(model, numbers[: np.flatnonzero(numbers > numbers.max() - 690.0)[-1] + 1])
    is_constrained = constraints_on(labels) is not None
    return {"prior": labels.owner.op.name, "parameters": parameters, "is_constrained": is_constrained}


def partition_support_point(op: PartitionRV, rv: Any, rng: Any, size: Any, *inputs: Any) -> Any:
    """Over-dispersed start of labels, for PyMC."""
    *params, rows = inputs
    most = op.most_clusters(*params)
    start = RandomStartRV(**_signature_with(rows.ndim == 2, RandomStartRV.signature))
    return start(most, rows, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


def prior_parameters(labels: Any) -> dict[str, Any]:
    """Return the parameters of a prior on partitions by their names; ``labels`` is its random variable."""
    op = labels.owner.op
    return dict(zip(op.fields, op.dist_params(labels.owner)[:-1], strict=True))


def fixed_rows(labels: Any) -> int | None:
    """Return the number of rows of labels, None if it may change."""
    n = labels.owner.inputs[-1]
    if not isinstance(n, Constant):
        return None
    return int(n.data) if n.ndim == 0 else n.data.shape[1]


def constraints_on(labels: Any) -> np.ndarray | None:
    """Return the constraints on labels, None if there are none."""
    last = labels.owner.inputs[-1]
    return None if last.ndim == 0 else np.asarray(last.data)


def _signature_with(constrained: bool, signature: str) -> dict[str, str]:
    """Return the signature of a random variable whose last parameter is n or, if constrained, constraints."""
    return {"signature": signature.replace("()->(n)", "(c,n)->(n)") if constrained else signature}


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
        alpha, discount = _checked_scalar("alpha", alpha), _checked_scalar("discount", discount)
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
        If an argument is of the wrong kind or outside its range.
    AssertionError
        When the density is evaluated, if the tail of ``components`` is so heavy that a sum over it is cut off.

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
        return cls._made([gamma, cls._log_components(components, _checked_rows(n)[0])], n, kwargs)

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
        log_p, total = _log_masses(components, wanted)
        if _is_fixed(components) and not is_variable(wanted):
            # Double the range of numbers until it holds the mass of the prior.
            while wanted < _MOST_TERMS and not _holds_mass(log_p.eval(), float(total.eval())):
                wanted *= 2
                log_p, total = _log_masses(components, wanted)
        enough = Assert(
            "the prior on the number of components has too heavy a tail: a part of its mass is beyond the range "
            "of the sum over it"
        )
        return enough(log_p - pt.logsumexp(log_p), total > 1.0 - _MISSING)

    @classmethod
    def _numeric(cls, gamma: float, n: int, components: Any) -> GibbsType | None:
        log_components = np.asarray(cls._log_components(components, checked_integer("n", n)).eval())
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


def _holds_mass(log_p: np.ndarray, total: float) -> bool:
    """Tell whether all but a negligible part of a distribution's mass is in the range."""
    return total > 1.0 - _MISSING and bool(log_p[-1] < log_p.max() - 40.0)


def _is_fixed(distribution: Any) -> bool:
    """Tell whether a distribution's parameters depend on no random variable and no data."""
    return not any(
        isinstance(a.type, pt.TensorType)
        and (isinstance(a, SharedVariable) or (a.owner is not None and isinstance(a.owner.op, RandomVariable)))
        for a in ancestors([distribution])
        if a is not distribution
    )


def _n_rows(n: Any) -> Any:
    """Return the number of rows from the last parameter, which is n or constraints."""
    return n if n.ndim == 0 else n.shape[1]


def _gibbs_type_logp(sizes: Any, log_v: Any, discount: Any, inside: Any) -> Any:
    """Log EPPF of a Gibbs-type prior; see :class:`pymc_dpgmm.partitions.priors.GibbsType`."""
    n_clusters = sizes.shape[0]
    within = log_rising(1.0 - discount, sizes - 1).sum()
    return pt.switch(inside & (n_clusters > 0), log_v + within, -np.inf)


def _two_parameter_log_eppf(sizes: Any, n: Any, alpha: Any, discount: Any, inside: Any, most: Any = np.inf) -> Any:
    """Log EPPF whose weight of the number of clusters is that of a Pitman-Yor process."""
    n_clusters = sizes.shape[0]
    inside = inside & (n_clusters <= most)
    # Outside the support, any valid number keeps the branch that is not taken finite.
    alpha = pt.switch(inside, alpha, 1.0)
    plain = isinstance(discount, float)
    discount = discount if plain else pt.switch(inside, discount, 0.0)
    if plain:
        opened = (n_clusters - 1) * pt.log(alpha)
    else:
        opened = pt.log(alpha + discount * pt.arange(1, n_clusters)).sum()
    log_v = opened - log_rising(alpha + 1.0, n - 1)
    return _gibbs_type_logp(sizes, log_v, discount, inside)


def _refuse_distributions(name: str, value: Any, cure: str) -> None:
    """Raise ValueError for a distribution made with ``.dist``, or an expression of one, in place of a variable."""
    for ancestor in ancestors([value]):
        if ancestor.name is None and ancestor.owner is not None and isinstance(ancestor.owner.op, RandomVariable):
            raise ValueError(
                f"{name} is a distribution, and no variable of the model: give it a name there, as in {cure}"
            )


def _checked_scalar(name: str, value: Any) -> Any:
    """Return a variable, or a finite number."""
    value = without_dims(value)
    if is_variable(value):
        if value.ndim != 0:
            raise ValueError(f"{name} must be a scalar, got a variable with {value.ndim} dimensions")
        _refuse_distributions(name, value, f'{name} = pm.Gamma("{name}", 1.0, 1.0)')
        return value
    number = np.asarray(value)
    if number.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be a real number or a variable, got {value!r}")
    if number.ndim != 0 or not np.isfinite(number):
        raise ValueError(f"{name} must be a finite scalar, got {value!r}")
    return np.float64(number)


def checked_positive(name: str, value: Any) -> Any:
    """Return a scalar variable, or a finite number > 0."""
    number = _checked_scalar(name, value)
    if not is_variable(number) and not number > 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def checked_integer(name: str, value: Any) -> int:
    """Return an integer of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer or a variable, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def checked_number_of_components(value: Any) -> Any:
    """Return an integer of at least 1, or a scalar variable of integers."""
    value = without_dims(value)
    if not is_variable(value):
        return checked_integer("n_components", value)
    if value.ndim != 0 or value.dtype not in pm.vartypes.discrete_types:
        raise TypeError("n_components must be an integer or a scalar variable with integer values")
    _refuse_distributions(
        "n_components", value, 'n_components = 1 + pm.Poisson("extra", 3.0), or use dp.MFMixture'
    )
    model = pm.Model.get_context(error_if_none=False)
    free = [] if model is None else model.free_RVs
    for behind in ancestors([value], blockers=free):
        if behind in free:
            # The tag makes pm.sample assign ComponentsGibbs to the variable.
            behind.tag.is_number_of_components = True
    return value


def _checked_rows(n: Any) -> tuple[Any, str]:
    """Return the number of rows and the dtype of their labels."""
    if is_variable(n):
        # The length of pm.Data may grow later.
        return n, "int32"
    n = checked_integer("n", n)
    return n, dtype_of_labels(n)


def dtype_of_labels(n: int) -> str:
    """Return the dtype of the labels of n rows."""
    return "int16" if n <= _MOST_ROWS_INT16 else "int32"


def _constraints(n: Any, known_labels: Any, must_link: Any) -> np.ndarray | None:
    """Return constraints from arguments with entries for rows, None without such arguments."""
    for name, groups in zip(_KNOWN, (known_labels, must_link), strict=True):
        if is_variable(groups):
            raise TypeError(f"{name} must be an array of names or numbers, not a variable or pm.Data")
    arguments = [groups for groups in (known_labels, must_link) if groups is not None]
    if not arguments:
        return None
    # If the number of rows may change, it is now that of the entries.
    n = len(arguments[0]) if is_variable(n) else checked_integer("n", n)
    return make_constraints(n, known_labels, must_link)


def checked_start(initval: Any, n: Any, constraints: np.ndarray | None = None) -> Any:
    """Return starting labels of n rows."""
    start = np.asarray(initval)
    if start.dtype.kind not in "iu":
        raise TypeError(f"initval of labels must be integers, got dtype {start.dtype}")
    if start.ndim != 1 or (not is_variable(n) and len(start) != n):
        raise ValueError(f"initval of labels must have shape ({n},), got {start.shape}")
    if start.size and (start.min() < 0 or start.max() >= len(start)):
        raise ValueError(
            f"initval of labels must lie in 0..n-1 = 0..{len(start) - 1}, got values from {start.min()} to "
            f"{start.max()}"
        )
    if constraints is not None and not allow(constraints, start):
        raise ValueError("initval of labels contradicts known_labels or must_link")
    return start
