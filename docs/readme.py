"""Run the example of the README, write what it prints into the README, and draw its picture.

Usage: ``python docs/readme.py``, or ``make readme``.
"""

import contextlib
import io
import os
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import pymc_dpgmm as dp

ROOT = Path(__file__).parent.parent
# Tables are as wide as a wide terminal.
os.environ["COLUMNS"] = "110"
# The example, and what it prints.
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def main():
    """Run, rewrite, draw."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    found = EXAMPLE.search(text)
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        # The bar of progress is for terminals.
        exec(found[1].replace("pm.sample(", "pm.sample(progressbar=False, "), names)
    output = "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())
    readme.write_text(text[: found.start(2)] + output + text[found.end(2) :])
    print(output)
    point = dp.point_partition(names["idata"], "y")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    dp.plot_clusters(names["idata"], "y", point, random_seed=1, ax=left)
    left.get_legend().set_loc("lower right")
    dp.plot_density(names["idata"], "y", columns="duration", random_seed=1, ax=right)
    left.set(xlabel="duration of an eruption (min)", ylabel="wait for the next (min)", title="clusters")
    right.set(xlabel="duration of an eruption (min)", title="density")
    figure.savefig(ROOT / "docs" / "old_faithful.png", dpi=110)


if __name__ == "__main__":
    main()
