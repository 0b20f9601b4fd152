"""Operations of PyTensor that draw labels under a prior on partitions, and their log densities."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.raise_op import Assert

from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, LabelsRV, as_numbers
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.partitions.draws import draw_partition, draw_start
from pymc_dpgmm.partitions.known import draw_constrained_start
from pymc_dpgmm.partitions.priors import (
    LAST_SHARE,
    N_TERMS,
    GibbsType,
    chinese_restaurant,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    pitman_yor,
)


class RandomStartRV(LabelsMixtureRV):
    """Over-dispersed starting labels: see :func:`pymc_dpgmm.partitions.draws.draw_start`.

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
        """Return the log probability of a partition of n rows into clusters of some sizes, as a variable.

        ``sizes`` is empty where labels are out of range or contradict constraints: the log probability is minus
        infinity there, and outside the support of the parameters.
        """
        raise NotImplementedError

    def most_clusters(self, *params: Any) -> Any:
        """Return the number of clusters that there can be at most, a number or a variable; n is left out."""
        return np.inf

    def recorded(self, field: str, numbers: np.ndarray) -> np.ndarray:
        """Return what results need of a parameter that is an array: all of it."""
        return numbers

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

    def recorded(self, field: str, numbers: np.ndarray) -> np.ndarray:
        """Return probabilities of numbers of components without negligible ones at the end."""
        return numbers[: np.flatnonzero(numbers > numbers.max() - 690.0)[-1] + 1]


def partition_support_point(op: PartitionRV, rv: Any, rng: Any, size: Any, *inputs: Any) -> Any:
    """Over-dispersed start of labels, for PyMC."""
    *params, rows = inputs
    most = op.most_clusters(*params)
    start = RandomStartRV(**_signature_with(rows.ndim == 2, RandomStartRV.signature))
    return start(most, rows, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]


def _signature_with(constrained: bool, signature: str) -> dict[str, str]:
    """Return the signature of a random variable whose last parameter is n or, if constrained, constraints."""
    return {"signature": signature.replace("()->(n)", "(c,n)->(n)") if constrained else signature}


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
