"""Models of rows in order: change points, and hidden Markov models."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.default_base import default_base_of_segments, default_base_of_states
from pymc_dpgmm.integration.variables.hidden_labels import add_hidden_labels
from pymc_dpgmm.integration.variables.segment_labels import add_segment_labels
from pymc_dpgmm.models.added_mixture import Request, add_mixture
from pymc_dpgmm.models.arguments import MixtureArguments, takes_mixture_arguments


@takes_mixture_arguments
def ChangePoints(  # noqa: N802
    name: str,
    p: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    sequence: Any = None,
    order: Any = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    r"""Add a model of rows in order whose distribution changes at unknown places.

    Between neighbours there is a change with probability ``p``, independently. The rows between two changes are a
    segment; the parameters of each segment are drawn from the base measure, and integrated out. With the rows in
    segments :math:`A_1, \dots, A_K` and m pairs of neighbours,

    .. math:: p(\text{labels}, y) = p^{K - 1} (1 - p)^{m - K + 1} \prod_{k=1}^K \pi(y_{A_k})

    for the marginal likelihoods :math:`\pi` of the base measure (Barry and Hartigan 1993; Fearnhead 2006). The
    function adds the numbers of the segments ``{name}_labels``, the data ``name`` given these, and the
    Deterministic ``{name}_n_clusters``, the number of segments. Given all else in the model, all segments are
    drawn exactly and at once.

    Parameters
    ----------
    name : str
        Name of the rows in the model.
    p : scalar or variable, in (0, 1)
        Probability of a change between neighbours: a number or any PyMC variable, such as
        ``pm.Beta("p", 1.0, 99.0)``.
    sequence : (n,) array_like, optional
        The sequence of each row: names or integers. Each begins with a segment of its own. By default all rows are
        one sequence.
    order : (n,) array_like of numbers or dates, optional
        By which the rows of a sequence come one after the other; no two of them may be equal. By default they are
        in the order of the table.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`. ``unit``, ``known_labels``, ``must_link`` and
        ``initval`` are not supported. Without a base measure, that of real columns has numbers and learns nothing:
        ``NormalInverseGamma(mean, 1, 1, variance)`` of the data counts as one row of the whole table.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1.0, 9.0)
    ...     y = dp.ChangePoints("y", p, dp.GammaPoisson(1.0, 0.5), observed=[3, 4, 2, 0, 1, 0, 0])
    >>> [variable.name for variable in model.basic_RVs]
    ['p', 'y_labels', 'y']
    """
    if arguments.get("unit") is not None:
        raise NotImplementedError("unit is not supported for change points: rows come one after the other")
    of_rows = {"sequence": sequence, "order": order}
    prior = partial(add_segment_labels, p=p)
    return add_mixture(Request(name, prior, base, arguments, default=default_base_of_segments, of_rows=of_rows))


@takes_mixture_arguments
def HDPHMM(  # noqa: N802
    name: str,
    alpha: Any,
    gamma: Any,
    base: BaseMeasure | Mapping[str, Any] | None = None,
    *,
    kappa: Any = 0.0,
    n_states: int | None = None,
    sequence: Any = None,
    order: Any = None,
    **arguments: Unpack[MixtureArguments],
) -> Any:
    r"""Add a hidden Markov model with any number of states to the current model.

    Rows come in order. The state of each row depends on that of the row before; rows of a state are drawn from one
    distribution, whose parameters are drawn from the base measure and integrated out. The probabilities
    :math:`\pi_j` of the states after state j are drawn around weights :math:`\beta` that all states share,

    .. math:: \beta \sim \text{GEM}(\gamma), \qquad
        \pi_j \sim \text{DP}\left(\alpha + \kappa, \frac{\alpha \beta + \kappa \delta_j}{\alpha + \kappa}\right),

    so that there are as many states as the rows need: the hierarchical Dirichlet process hidden Markov model (Teh
    et al. 2006), sticky where ``kappa`` is not zero (Fox et al. 2011). The first states of sequences are drawn
    from one more distribution around :math:`\beta`, without ``kappa``. The function adds the states
    ``{name}_labels``, the data ``name`` given these, and the Deterministic ``{name}_n_clusters``, the number of
    states. The variable ``{name}_openers`` is 1 for rows whose state was drawn from the shared weights, 2 for rows
    that stay by ``kappa``, and 0 for rows that follow an earlier transition; it is sampled with the states, and
    carries the log density of both.

    Parameters
    ----------
    name : str
        Name of the rows in the model.
    alpha : scalar or variable, > 0
        Concentration of transitions: with a large one, the next state does not depend on the present one.
    gamma : scalar or variable, > 0
        Concentration of the shared weights: with a large one there are more states.
    kappa : scalar or variable, >= 0
        Weight of staying in a state. The prior mean of the probability of staying is about
        ``kappa / (alpha + kappa)``.
    n_states : int, optional
        The largest number of states. The shared weights are then Dirichlet with ``n_states`` parameters ``gamma /
        n_states``, and with a large ``gamma``, such as 1e6, they are equal: transitions from each state are
        Dirichlet with parameters ``alpha / n_states``, and ``kappa`` more for staying. By default no number of
        states is too large.
    sequence : (n,) array_like, optional
        The sequence of each row: names or integers. By default all rows are one sequence.
    order : (n,) array_like of numbers or dates, optional
        By which the rows of a sequence come one after the other; no two of them may be equal. By default they are
        in the order of the table.
    base, **arguments
        As for all mixtures: see :class:`MixtureArguments`. ``known_labels`` are the states of rows that are known.
        ``unit``, ``must_link`` and ``power`` are not supported. Without a base measure, that of real columns has
        the numbers of its ``from_data``, and learns nothing.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     alpha, gamma = pm.Gamma("alpha", 2.0, 1.0), pm.Gamma("gamma", 2.0, 1.0)
    ...     y = dp.HDPHMM(
    ...         "y", alpha, gamma, dp.GammaPoisson(1.0, 0.2), kappa=5.0, observed=[3, 4, 2, 0, 1, 0, 9, 8]
    ...     )
    >>> [variable.name for variable in model.free_RVs]
    ['alpha', 'gamma', 'y_labels', 'y_openers']
    """
    if arguments.get("unit") is not None:
        raise NotImplementedError("unit is not supported for hidden states: rows come one after the other")
    if arguments.get("power") is not None:
        raise NotImplementedError("power is not supported for hidden states: leave it out")
    of_rows = {"sequence": sequence, "order": order}
    prior = partial(add_hidden_labels, alpha=alpha, gamma=gamma, kappa=kappa, n_states=n_states)
    return add_mixture(Request(name, prior, base, arguments, default=default_base_of_states, of_rows=of_rows))
