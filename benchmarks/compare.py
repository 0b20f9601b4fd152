"""Prints figures of an older checkout of the package beside those of this one; see benchmarks/README.md.

Usage: ``python benchmarks/compare.py --before PATH [SECTION ...] [--after PATH] [--folder FOLDER]``. Without sections
it runs all, a quarter of an hour or more. Writes ``FOLDER/compare.json``. A checkout is made by
``git worktree add PATH COMMIT``.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from probes import ROOT, TASKS, measure


def median(results, key):
    return statistics.median(result[key] for result in results) if results else None


def first_draw(checkout, arguments):
    """Seconds from the start of a process to the first draw, compile caches empty and filled."""
    with tempfile.TemporaryDirectory() as caches:
        seconds = [measure("first_draw", checkout, Path(caches))[0]["seconds"] for _ in range(4)]
    yield "first draw, caches cold, s", seconds[0]
    yield "first draw, caches warm, s", statistics.median(seconds[1:])
    yield "import after import pymc, s", median([measure("imported", checkout)[0] for _ in range(5)], "package")


def mixing(checkout, arguments):
    """Draws through ``pm.sample`` beside the bare loop, on three data sets."""
    for data in ("galaxies", "Old Faithful", "five clusters"):
        runs = measure("mixing", checkout, data=data)
        yield f"{data}: us per draw", median(runs, "us")
        yield f"{data}: us per scan of the bare loop", median(runs, "bare_us")
        for name in ("n_clusters", "entropy", "log_joint"):
            yield f"{data}: effective draws per s, {name}", median(runs, name)
            yield f"{data}: effective draws per s, {name}, bare", median(runs, f"bare_{name}")
            ratios = [run[name] / run[f"bare_{name}"] for run in runs]
            yield f"{data}: {name} over the bare loop", statistics.median(ratios)


def wide_scans(checkout, arguments):
    """Seconds of Gibbs scans of 1,000 rows from four clusters; where time was up, of those that there were."""
    # Compiles, so that no case pays for it.
    measure("wide_scans", checkout, n=40, d=2)
    for d in (128, 256, 512, 1024):
        scans = measure("wide_scans", checkout, timeout=arguments.limit, d=d)[1:]
        yield f"1,000 x {d:,}: s of the first scan", scans[0]["seconds"] if scans else None
        yield f"1,000 x {d:,}: s per scan, median of four at most", median(scans, "seconds")


def lines(checkout, arguments):
    """Lines of each family, and of the package."""
    total = 0
    for path in sorted((checkout / "pymc_dpgmm").rglob("*.py")):
        n = len(path.read_text().splitlines())
        total += n
        if path.parent.name == "families":
            yield f"lines of families/{path.name}", n
    yield "lines of the package", total


def memory(checkout, arguments):
    """MiB by which a process grows at the most while it samples 1,000,000 x 2 rows, labels of the last draw kept."""
    result = measure("memory", checkout, n=1_000_000)[0]
    yield "1,000,000 x 2: growth, MiB", result["mib"]
    yield "1,000,000 x 2: data, MiB", result["data_mib"]
    yield "1,000,000 x 2: s for five draws after five of tuning", result["s"]


def tasks(checkout, arguments):
    """Seconds of things that users do."""
    for name in TASKS:
        for result in measure("task", checkout, of=name):
            yield f"{name}: {result['what']}, s", result["seconds"]


SECTIONS = {f.__name__: f for f in (first_draw, mixing, wide_scans, lines, memory, tasks)}


def show(value):
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--before", type=Path, required=True, help="root of the older checkout")
    parser.add_argument("--after", type=Path, default=ROOT, help="root of the newer one, by default this one")
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each of the wide scans' cases")
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before.resolve(), "after": arguments.after.resolve()}
    for checkout in checkouts.values():
        if not (checkout / "pymc_dpgmm" / "__init__.py").exists():
            parser.error(f"{checkout} is not a checkout of the package")
    table = {}
    print(f"{'':<56} {'before':>12} {'after':>12} {'after/before':>12}", flush=True)
    for section in arguments.sections or SECTIONS:
        found = {which: dict(SECTIONS[section](checkout, arguments)) for which, checkout in checkouts.items()}
        for name in dict.fromkeys([*found["before"], *found["after"]]):
            before, after = (found[which].get(name) for which in checkouts)
            table[name] = {"before": before, "after": after}
            ratio = after / before if before and after else None
            print(f"{name:<56} {show(before):>12} {show(after):>12} {show(ratio):>12}", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "compare.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
