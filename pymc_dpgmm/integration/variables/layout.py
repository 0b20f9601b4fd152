"""The inputs of a mixture's random variable: which of them there are, and in which order.

This is the only place that knows the order. Everything else reads inputs by their names.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Variable
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dpgmm.families import FAMILIES, Family


class MixtureInputs(NamedTuple):
    """Inputs of a mixture's random variable, or their values. What a mixture does not have is None.

    Parameters
    ----------
    labels : (n,)
        Labels of the rows.
    params : sequence
        The family's parameters.
    given : (n, g), optional
        Columns for what is given with the rows.
    missing, positions : (m,), optional
        The values of missing entries that are drawn, and their positions in the flattened data.
    offset : like the value, optional
        What is subtracted from the rows before they are clustered.
    data : like the value, optional
        The observed data, which draws of rows need whose labels come from a posterior.
    rows : (n, c), optional
        The data completed and less its offset, with columns for what is given.
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
        """Return the inputs that there are, in the order of the random variable's own."""
        optional = [getattr(self, name) for name in _OPTIONAL]
        return [self.labels, *self.params, *(value for value in optional if value is not None), *self.behind]

    def beside_labels(self) -> list[Any]:
        """Return all inputs but the labels."""
        return self.in_order()[1:]


_OPTIONAL = ("given", "missing", "positions", "offset", "data", "rows")


class Layout(NamedTuple):
    """What the inputs and the value of a mixture's random variable are.

    Parameters
    ----------
    family_name : str
        Key of :data:`pymc_dpgmm.families.FAMILIES`.
    n_columns : int
        Columns of the data; those of (n,) data are one.
    is_vector : bool
        Whether the value is (n,) in place of (n, 1).
    is_sparse : bool
        Whether the data is a table of the non-zeros: row index, column index and value.
    present : tuple of str
        Which of the optional inputs there are, in their order.
    behind : tuple of (str, int)
        Names and numbers of dimensions of the data of the model that are inputs too.
    """

    family_name: str
    n_columns: int
    is_vector: bool
    is_sparse: bool
    present: tuple[str, ...] = ()
    behind: tuple[tuple[str, int], ...] = ()

    @property
    def family(self) -> Family:
        """The family of the mixture."""
        return FAMILIES[self.family_name]

    def having(self, inputs: MixtureInputs) -> "Layout":
        """Return the layout of a random variable that has these optional inputs."""
        return self._replace(present=tuple(name for name in _OPTIONAL if getattr(inputs, name) is not None))

    def signature(self) -> str:
        """Return the dimensions of inputs and value, as PyTensor wants them."""
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
        return ",".join(f"({own})" for own in inputs) + f"->({value})"

    def split(self, inputs: Sequence[Any]) -> MixtureInputs:
        """Tell apart the inputs that follow the generator and the size, or their values."""
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
    """Return labels of units and the unit of each row, for labels of rows that are ``labels_of_units[unit]``.

    Other labels are returned as they are, with None.
    """
    node = labels.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return labels, None
    return node.inputs[0], node.inputs[1]
