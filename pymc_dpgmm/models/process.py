"""A Dirichlet process as the prior of the parameters of rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.tensor.random.basic import VonMisesRV

from pymc_dpgmm.integration.variables import CRP, PartitionRV, partition_sizes
from pymc_dpgmm.integration.variables.atoms import Template, atom_shape, draw_atoms, read_bases
from pymc_dpgmm.integration.variables.models import digest_of, unchanged_on_error, value_of
from pymc_dpgmm.integration.variables.records import add_record
from pymc_dpgmm.integration.variables.registered_labels import fixed_rows, register_labels
from pymc_dpgmm.tables.checks import check_count

RESERVED = ("labels", "n_clusters")


def DirichletProcess(  # noqa: N802
    name: str,
    alpha: Any = None,
    base: Any = None,
    *,
    shape: int | Sequence[int] | None = None,
    dims: str | Sequence[str] | None = None,
    prior: Any = None,
    known_labels: Any = None,
    must_link: Any = None,
    initval: Any = None,
    directions: Sequence[str] = (),
) -> Any:
    r"""Give each row a parameter from a distribution that has a Dirichlet process prior, for any likelihood.

    .. math:: \theta_i \mid G \sim G, \qquad G \sim \mathrm{DP}(\alpha, \text{base})

    A draw G of the process is discrete, so that rows share values, the *atoms*. The function adds three
    variables: labels ``{name}_labels``, which are equal for rows that share an atom; the parameters ``name`` of
    all rows given the labels; and the Deterministic ``{name}_n_clusters``. G is integrated out without truncation.
    ``pm.sample`` draws labels and atoms together (Neal 2000, Algorithm 8; Favaro and Teh 2013; Hamiltonian moves
    of the atoms; splits and merges), and everything else in the model by its own step methods; see
    :doc:`/any_likelihood`.

    If a conjugate family of the package fits data and base, use :func:`DPMixture`: it integrates the atoms out,
    and mixes better.

    Parameters
    ----------
    name : str
        Name of the parameters in the model.
    alpha : scalar or variable, > 0
        Concentration.
    base : distribution, or dict of distributions
        Base measure of the process: any continuous or discrete distribution made with ``.dist``, scalar or of any
        shape, with numbers or variables of the model as parameters. With a dict, an atom has several values, and
        each row gets one parameter per key. An entry may be the parameter of another one, as in
        ``{"mean": pm.Normal.dist(0, scale), "scale": scale}``. A distribution with single values beside a density,
        such as a spike and slab, is two entries, an indicator and a size.
    shape : int or tuple, optional
        Number of rows n; or (n, ...), where ... is the shape of an atom.
    dims : str or tuple of str, optional
        Dimension of the rows, followed by those of an atom if it has any. With a dict, the dimension of the rows
        only.
    prior : distribution, optional
        Another prior on partitions, instead of ``alpha``: ``dp.PitmanYor.dist(alpha, discount, n)``,
        ``dp.FiniteDirichlet.dist(alpha, n_components, n)``, ``dp.MFM.dist(gamma, n, components=...)``, or one from
        outside the package.
    known_labels, must_link : (n,) array_like, optional
        As in :class:`CRP`.
    initval : (n,) integer array_like, optional
        Starting labels, as in :class:`CRP`.
    directions : sequence of str, optional
        Entries of ``base`` that are directions, angles in radians; where ``base`` is a single distribution,
        ``name``. Results average them as unit vectors. Entries with the base ``pm.VonMises`` are always
        directions.

    Returns
    -------
    TensorVariable, or dict of these
        The parameters of all rows, of shape (n, ...). With a dict of distributions, a dict of these; the variable
        of the key ``k`` is named ``{name}_k``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range. The model is then left as it was.
    NotImplementedError
        If a continuous base has single values of positive probability.

    Examples
    --------
    Poisson counts with means that unknown clusters of rows share:

    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     alpha, m = pm.Gamma("alpha", 1.0, 1.0), pm.Normal("m", 0.0, 2.0)
    ...     rate = dp.DirichletProcess("rate", alpha, base=pm.LogNormal.dist(m, 1.0), shape=6)
    ...     y = pm.Poisson("y", rate, observed=[0, 2, 1, 12, 7, 10])
    >>> [variable.name for variable in model.free_RVs]
    ['alpha', 'm', 'rate_labels', 'rate']
    """
    model = pm.modelcontext(None)
    several = isinstance(base, Mapping)
    bases = dict(base) if several else {"": base}
    if not bases:
        raise ValueError("base has no entries")
    taken = [key for key in bases if key in RESERVED]
    if taken:
        raise ValueError(f"an entry of base cannot be named {taken[0]!r}, which the model needs for itself")
    unknown = [key for key in directions if key not in (bases if several else (name,))]
    if unknown or isinstance(directions, str):
        known = list(bases) if several else [name]
        raise ValueError(f"directions must be a sequence of names among {known}, got {directions!r}")
    with unchanged_on_error(model):
        entries = read_bases(model, bases)
        shapes = {key: atom_shape(key, atom) for key, (atom, _) in entries.items()}
        n = _n_rows(model, shape, dims, prior, None if several else shapes[""])
        row_dims, atom_dims = _split_dims(dims, None if several else shapes[""])
        labels = _add_labels(model, name, alpha, n, prior, row_dims, known_labels, must_link, initval)
        rows: dict[Any, Any] = {}
        for key, (atom, inputs) in entries.items():
            of_entries = {other: rows[k] for k, (other, _) in entries.items() if k in rows}
            template = Template(atom, inputs, [v in of_entries for v in inputs])
            template_inputs = [of_entries.get(v, v) for v in inputs]
            row_name = f"{name}_{key}" if several else name
            entry_dims = None if row_dims is None else (row_dims, *atom_dims)
            if entry_dims is not None and len(entry_dims) != 1 + len(shapes[key]):
                entry_dims = None
            rows[key] = model.register_rv(
                draw_atoms(template, labels, template_inputs), row_name, dims=entry_dims, default_transform=None
            )
        pm.Deterministic(f"{name}_n_clusters", partition_sizes(labels).shape[0])
        behind = [v for _, inputs in entries.values() for v in inputs if model.named_vars.get(v.name) is v]
        full_name = model.name_for(name)
        record = {
            "labels": labels.name,
            "entries": {key or full_name: rows[key].name for key in bases},
            "parameters": {v.name: {"variable": v.name} for v in behind},
            "directions": [
                key or full_name for key in bases if (key or name) in directions or _is_von_mises(entries[key][0])
            ],
            "digests": {row.name: digest_of(model, row) for row in rows.values()},
        }
        add_record(model, f"{full_name}_atoms", record)
    return {key: rows[key] for key in bases} if several else rows[""]


def _is_von_mises(atom: Any) -> bool:
    """Tell whether the base of an entry is a distribution on the circle."""
    return isinstance(getattr(atom.owner, "op", None), VonMisesRV)


def _n_rows(model: pm.Model, shape: Any, dims: Any, prior: Any, atom: tuple[int, ...] | None) -> int:
    """Return the number of rows, from ``shape``, ``dims`` or ``prior``, which must agree."""
    counts = {}
    if shape is not None:
        lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if atom is not None and len(lengths) > 1 and tuple(lengths[1:]) != atom:
            raise ValueError(f"shape must be n, or n and the shape {atom} of an atom of base, got {shape}")
        if atom is None and len(lengths) > 1:
            raise ValueError(f"with a dict of distributions, shape is the number of rows alone, got {shape}")
        if not lengths:
            raise ValueError("shape must be the number of rows, got ()")
        check_count("shape", lengths[0], 1)
        counts["shape"] = int(lengths[0])
    if dims is not None:
        first = dims if isinstance(dims, str) else dims[0]
        if first in model.dim_lengths:
            counts["dims"] = int(value_of(model.dim_lengths[first]))
    if _is_prior(prior):
        rows = fixed_rows(prior)
        if rows is not None:
            counts["prior"] = rows
    if not counts:
        raise ValueError("the number of rows is missing: give shape=n, or dims= whose length the model knows")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{n} by {what}" for what, n in counts.items())
        raise ValueError(f"shape, dims and prior must have the same number of rows, got {listed}")
    return next(iter(counts.values()))


def _is_prior(prior: Any) -> bool:
    """Tell whether something is one of the package's priors on partitions."""
    return isinstance(getattr(getattr(prior, "owner", None), "op", None), PartitionRV)


def _split_dims(dims: Any, atom: tuple[int, ...] | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the dimension of the rows, and those of an atom."""
    if dims is None:
        return None, ()
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    wanted = (1,) if atom is None else (1, 1 + len(atom))
    if len(names) not in wanted:
        raise ValueError(f"dims must name {' or '.join(map(str, wanted))} dimensions, got {dims}")
    return names[0], names[1:]


def _add_labels(
    model: pm.Model,
    name: str,
    alpha: Any,
    n: int,
    prior: Any,
    row_dims: str | None,
    known_labels: Any,
    must_link: Any,
    initval: Any,
) -> Any:
    """Add the labels of rows, which are equal for rows that share an atom."""
    labels_name = f"{name}_labels"
    dims = None if row_dims is None else (row_dims,)
    if prior is None:
        if alpha is None:
            raise TypeError("DirichletProcess() needs alpha, a concentration, or prior=")
        return CRP(
            labels_name, alpha, n, dims=dims, known_labels=known_labels, must_link=must_link, initval=initval
        )
    if alpha is not None:
        raise TypeError(
            "alpha is the concentration of a Dirichlet process; with prior= it must be left out (None)"
        )
    if not _is_prior(prior):
        raise TypeError(
            "prior must be a prior on partitions made with .dist, such as dp.PitmanYor.dist(alpha, discount, n), "
            f"got {prior!r}"
        )
    if prior in model.basic_RVs:
        raise ValueError(f"prior is {prior.name}, a variable of the model already; make it with .dist")
    if known_labels is not None or must_link is not None:
        raise TypeError("with prior=, known_labels and must_link are arguments of its .dist")
    return register_labels(model, labels_name, prior, dims, initval)
