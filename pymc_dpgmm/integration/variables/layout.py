"""The inputs of a mixture's random variable and their order.

No other module knows the order: inputs are read by name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Variable
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dpgmm.families import FAMILIES, Family


class MixtureInputs(NamedTuple):
    """Inputs of a mixture's random variable, or their values. Inputs that a mixture does not have are None.

    Parameters
    ----------
    labels : (n,)
        Labels of the rows.
    params : sequence
        The family's parameters.
    given : (n, g), optional
        Known columns that belong to the rows, such as covariates or exposure.
    missing, positions : (m,), optional
        The values of missing entries that are drawn, and their positions in the flattened data.
    offset : like the value, optional
        Subtracted from the rows before they are clustered.
    data : like the value, optional
        The observed data, for posterior predictive draws.
    rows : (n, c), optional
        The completed data minus its offset, with the columns ``given``.
    behind : sequence
        Data of the model that the other inputs are computed from.
    """

    labels: Any
    params: Sequence[Any]
    given: Any = None
    missing: Any = None
    positions: Any = None
    offset: Any = None
    data: Any = None
    rows: Any = None
    behind: Sequence[Any] = ()

    def in_order(self) -> list[Any]:
        """Return the inputs that are not None, in the order of the random variable."""
        optional = [getattr(self, name) for name in _OPTIONAL]
        return [self.labels, *self.params, *(value for value in optional if value is not None), *self.behind]

    def beside_labels(self) -> list[Any]:
        """Return all inputs but the labels."""
        return self.in_order()[1:]


_OPTIONAL = ("given", "missing", "positions", "offset", "data", "rows")


class Layout(NamedTuple):
    """Description of the inputs and the value of a mixture's random variable.

    Parameters
    ----------
    family_name : str
        Key of :data:`pymc_dpgmm.families.FAMILIES`.
    n_columns : int
        Number of columns of the data; 1 for (n,) data.
    is_vector : bool
        Whether the value has the shape (n,) instead of (n, 1).
    is_sparse : bool
        Whether the data is a table of the non-zeros: row index, column index and value.
    present : tuple of str
        Names of the optional inputs that the mixture has, in their order.
    behind : tuple of (str, int)
        Names and numbers of dimensions of those data of the model that are inputs too.
    power : float
        Of the density.
    """

    family_name: str
    n_columns: int
    is_vector: bool
    is_sparse: bool
    present: tuple[str, ...] = ()
    behind: tuple[tuple[str, int], ...] = ()
    power: float = 1.0

    @property
    def family(self) -> Family:
        """The family of the mixture."""
        return FAMILIES[self.family_name]

    def having(self, inputs: MixtureInputs) -> "Layout":
        """Return the layout with the optional inputs that are not None in ``inputs``."""
        return self._replace(present=tuple(name for name in _OPTIONAL if getattr(inputs, name) is not None))

    def signature(self) -> str:
        """Return the dimensions of inputs and value as a signature of PyTensor."""
        value = "n" if self.is_vector else "n,d"
        letters = {
            "given": "n,g",
            "missing": "m",
            "positions": "m",
            "offset": value,
            "data": "z,t" if self.is_sparse else value,
            "rows": "v,c",
        }
        inputs = ["n", *(",".join(axes) for axes in self.family.axes.values())]
        inputs += [letters[name] for name in self.present]
        inputs += [",".join(f"s{i}_{j}" for j in range(ndim)) for i, (_, ndim) in enumerate(self.behind)]
        return ",".join(f"({letters_of_input})" for letters_of_input in inputs) + f"->({value})"

    def split(self, inputs: Sequence[Any]) -> MixtureInputs:
        """Return the inputs after generator and size, or their values, by name."""
        labels, *others = inputs
        n_params, n_present = len(self.family.axes), len(self.present)
        optional = others[n_params : n_params + n_present]
        behind = others[n_params + n_present :]
        return MixtureInputs(
            labels, others[:n_params], **dict(zip(self.present, optional, strict=True)), behind=behind
        )


def mixture_inputs(mixture: Variable) -> MixtureInputs:
    """Return the inputs of a mixture's random variable."""
    node = mixture.owner
    return node.op.layout.split(node.op.dist_params(node))


def of_units(labels: Variable) -> tuple[Variable, Variable | None]:
    """Return the labels of units and the unit of each row from labels of rows, ``labels_of_units[unit]``.

    Other labels are returned unchanged, with None as the unit.
    """
    node = labels.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return labels, None
    return node.inputs[0], node.inputs[1]
