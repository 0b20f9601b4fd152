"""Step methods: which is chosen, same seed same draws, states that resume, and what is refused."""

import copy

import numpy as np
import pymc as pm
import pytest
import sampled
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.step_methods.compound import flatten_steps

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps.continuous import ContinuousMove
from pymc_dpgmm.sampler.moves.split_merge import RANDOM_MOVE

pytestmark = pytest.mark.interpreted

ROWS = np.random.default_rng(0).normal(size=(40, 2)) + 4.0 * (np.arange(40) % 3)[:, None]
BASE = dp.NormalInverseWishart.from_data(ROWS)


def mixture_model(alpha_prior=None):
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0) if alpha_prior is None else alpha_prior()
        dp.DPMixture("y", alpha, BASE, observed=ROWS)
    return model


def sample(model, **kwargs):
    defaults = {"draws": 60, "tune": 30, "chains": 2, "cores": 1, "random_seed": 7}
    return sampled.sample(model, **(defaults | kwargs))


def assigned(model):
    steps = pm.sampling.mcmc.assign_step_methods(model)[1]
    with model:
        made = pm.sampling.mcmc.instantiate_steppers(model, [], steps, compile_kwargs={})
    return {
        type(s).__name__: sorted(v.name for v in s.vars)
        for made_step in (made if isinstance(made, list) else [made])
        for s in flatten_steps(made_step)
    }


def test_gamma_alpha_gets_the_exact_draw():
    assert assigned(mixture_model()) == {"DPMixtureStep": ["alpha_log__", "y_labels"]}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("case", ["half-cauchy", "shared", "elsewhere"])
def test_other_alphas_are_drawn_by_the_step_of_the_labels(case, inside):
    model = mixture_model((lambda: pm.HalfCauchy("alpha", 1.0)) if case == "half-cauchy" else None)
    with model:
        if case == "shared":
            dp.DPMixture("z", model["alpha"], BASE, observed=ROWS)
        if case == "elsewhere":
            pm.Normal("x", model["alpha"], observed=0.3)
        chosen = assigned(model) if inside else None
    chosen = chosen or assigned(model)
    assert (
        chosen
        == {
            "half-cauchy": {"DPMixtureStep": ["alpha_log__", "y_labels"]},
            "shared": {"DPMixtureStep": ["alpha_log__", "y_labels", "z_labels"]},
            "elsewhere": {"DPMixtureStep": ["alpha_log__", "y_labels"]},
        }[case]
    )


def test_concentration_without_its_labels():
    """Labels that have a step of the user's own leave the exact draw of alpha to a step of its own."""
    model = mixture_model()
    with model:
        idata = sample(model, step=[dp.CollapsedGibbs()])
        step = dp.DPMixtureStep(vars=[model.rvs_to_values[model["alpha"]]], model=model, compile_kwargs={})
    assert np.unique(idata.posterior["alpha"]).size == 120
    assert isinstance(step, dp.ConcentrationGibbs)


def test_concentrations_that_could_not_be_drawn_are_refused():
    model = mixture_model()
    with model:
        with pytest.raises(ValueError, match="alpha_log__ can be drawn here together with its own labels only"):
            dp.DPMixtureStep([model["alpha"]])
        dp.DPMixture("z", pm.Gamma("beta", 1.0, 1.0), observed=ROWS)
        with pytest.raises(ValueError, match="beta_log__ can be drawn here together with its own labels only"):
            dp.DPMixtureStep([model["y_labels"], model["alpha"], model["beta"]])


def test_concentrations_kept_in_an_interval_are_not_drawn_from_the_whole_gamma():
    interval = pm.distributions.transforms.Interval(0.5, 1.5)
    model = mixture_model(lambda: pm.Gamma("alpha", 1.0, 1.0, default_transform=interval))
    assert assigned(model) == {"DPMixtureStep": ["alpha_interval__", "y_labels"]}
    alpha = sample(model).posterior["alpha"]
    assert 0.5 < alpha.min() < alpha.max() < 1.5
    with model, pytest.raises(TypeError, match="default transform"):
        dp.ConcentrationGibbs([model["alpha"]])


def test_nested_steps_sample():
    """Outside of the model's context PyMC learns only from the step that alpha does not fit."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, observed=ROWS)
        dp.DPMixture("z", alpha, observed=ROWS)
        pm.Normal("x", alpha, observed=0.3)
    idata = pm.sample(
        20, tune=20, chains=1, model=model, progressbar=False, quiet=True, compute_convergence_checks=False
    )
    assert {"y_labels_n_clusters", "z_labels_n_clusters", "tree_depth"} <= set(idata.sample_stats)


def test_same_seed_same_draws_on_one_core_and_two():
    draws = [sample(mixture_model(), cores=cores) for cores in (1, 2, 1)]
    for other in draws[1:]:
        for name in ("y_labels", "alpha"):
            assert np.array_equal(draws[0].posterior[name], other.posterior[name])
        for name in ("y_labels_log_joint", "y_labels_n_moved"):
            assert np.array_equal(draws[0].sample_stats[name], other.sample_stats[name])
    assert not np.array_equal(draws[0].posterior["y_labels"][0], draws[0].posterior["y_labels"][1])


@pytest.mark.parametrize("kind", ["dpmixture", "gibbs", "split_merge", "concentration"])
def test_restored_state_repeats_the_draws(kind):
    model = mixture_model()
    with model:
        step = {
            "dpmixture": lambda: dp.DPMixtureStep([model["y_labels"]]),
            "gibbs": lambda: dp.CollapsedGibbs([model["y_labels"]], n_scans=2),
            "split_merge": lambda: dp.SplitMerge([model["y_labels"]], sequential=3),
            "concentration": lambda: dp.ConcentrationGibbs([model["alpha"]]),
        }[kind]()
    step.setup_chain(np.random.default_rng(1), 10, 10)
    point = model.initial_point(random_seed=1)
    for _ in range(20):
        point, _ = step.step(point)
    saved, start = copy.deepcopy(step.sampling_state), copy.deepcopy(point)

    def run():
        point, seen = start, []
        for _ in range(15):
            point, stats = step.step(point)
            seen.append((copy.deepcopy(point), stats[0]))
        return seen

    first = run()
    step.sampling_state = saved
    for (p, s), (q, t) in zip(first, run(), strict=True):
        assert all(np.array_equal(p[name], q[name]) for name in p)
        names = [name for name in s if not name.endswith("seconds")]
        np.testing.assert_equal([s[name] for name in names], [t[name] for name in names])


def test_labels_changed_by_somebody_else_are_noticed():
    model = mixture_model()
    with model:
        step = dp.CollapsedGibbs()
    step.setup_chain(np.random.default_rng(1), 0, 10)
    point = model.initial_point(random_seed=1)
    for start in range(3):
        point, _ = step.step(point)
        point = point | {"y_labels": np.full(40, start, dtype="int16")}
    point, stats = step.step(point)
    with pm.Model() as again:
        dp.DPMixture("y", float(np.exp(point["alpha_log__"])), BASE, observed=ROWS)
    assert stats[0]["y_labels_log_joint"] == pytest.approx(
        again.compile_logp()({"y_labels": point["y_labels"]}), rel=1e-10
    )


def test_new_data_are_rechecked():
    with pm.Model() as model:
        data = pm.Data("data", ROWS)
        dp.DPMixture("y", 1.0, observed=data)
        pm.set_data({"data": ROWS[:10]})
        idata = sample(model, draws=5, tune=5)
        assert idata.posterior["y_labels"].shape == (2, 5, 10)
        pm.set_data({"data": np.where(np.arange(40)[:, None] == 3, np.nan, ROWS)})
        with pytest.raises(ValueError, match="2 missing entries"):
            sample(model, draws=5, tune=5)


def test_statistics_carry_the_labels_names():
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=ROWS)
        dp.DPMixture("z", 2.0, observed=ROWS[:, 0])
    idata = sample(model)
    for name in ("y", "z"):
        stats = idata.sample_stats
        assert np.array_equal(stats[f"{name}_labels_n_clusters"], idata.posterior[f"{name}_n_clusters"])
        assert stats[f"{name}_labels_largest_share"].max() <= 1
        assert stats[f"{name}_labels_seconds"].min() > 0
        assert stats[f"{name}_labels_n_moved"].dtype == np.int64
        labels = idata.posterior[f"{name}_labels"].to_numpy().reshape(-1, 40)
        shares = [np.bincount(row)[np.bincount(row) > 0] / 40 for row in labels]
        entropy = [-np.sum(share * np.log(share)) for share in shares]
        assert np.ravel(stats[f"{name}_labels_entropy"]) == pytest.approx(entropy)
        for kind in ("sequential", "random"):
            for move in ("split", "merge"):
                accepted = stats[f"{name}_labels_{kind}_{move}s"]
                size = stats[f"{name}_labels_{kind}_{move}_size"]
                assert (accepted <= stats[f"{name}_labels_{kind}_{move}s_tried"]).all()
                assert (np.isnan(size) == (accepted == 0)).all()
                assert float(size.min()) >= 1
                assert float(size.max()) <= 20


def test_progress_bar_runs(capsys):
    with mixture_model():
        pm.sample(10, tune=10, chains=2, cores=1, progressbar=True, compute_convergence_checks=False)


def test_labels_are_canonical():
    labels = sample(mixture_model()).posterior["y_labels"].to_numpy().reshape(-1, 40)
    for row in labels:
        _, first = np.unique(row, return_index=True)
        assert np.array_equal(row[np.sort(first)], np.arange(len(first)))


def test_options_are_used():
    model = mixture_model()
    idata = sample(
        model,
        dpmixture={
            "n_sweeps": 2,
            "gibbs": {"n_scans": 3},
            "split_merge": {"sequential": 5, "random": 0},
            "threads": 2,
        },
    )
    stats = idata.sample_stats
    tried = {
        kind: stats[f"y_labels_{kind}_splits_tried"] + stats[f"y_labels_{kind}_merges_tried"]
        for kind in ("sequential", "random")
    }
    assert (tried["sequential"] == 10).all()
    assert (tried["random"] == 0).all()
    with model:
        alone = sample(model, step=[dp.SplitMerge([model["y_labels"]], sequential=4, search=False)]).sample_stats
    assert (alone["y_labels_n_moved"] == 0).all()
    assert (alone["y_labels_sequential_splits_tried"] + alone["y_labels_sequential_merges_tried"] == 4).all()
    assert (
        alone["y_labels_random_splits_tried"] + alone["y_labels_random_merges_tried"] == RANDOM_MOVE.beside_scans
    ).all()


def test_numbers_of_moves_are_frozen_after_tuning():
    idata = sample(mixture_model(), tune=200, draws=50)
    stats = idata.sample_stats
    for kind in ("sequential", "random"):
        tried = stats[f"y_labels_{kind}_splits_tried"] + stats[f"y_labels_{kind}_merges_tried"]
        assert (tried == tried.isel(draw=0)).all()
        assert (tried > 0).all()
    assert not stats["y_labels_searching"].any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gibbs": {"sweeps": 3}}, ValueError, "unknown options for gibbs: sweeps; allowed are n_scans"),
        (
            {"split_merge": {"smart": 1}},
            ValueError,
            "unknown options for split_merge: smart; allowed are random, sequential, carving, reallocation, ",
        ),
        ({"split_merge": 5}, TypeError, "split_merge must be a dict of options"),
        ({"split_merge": {"random": -1}}, ValueError, "random must be at least 0, got -1"),
        ({"split_merge": {"sequential": 1.5}}, TypeError, "sequential must be an integer, got 1.5"),
        ({"split_merge": {"search": 1}}, TypeError, "search must be True or False, got 1"),
        (
            {"n_sweep": 3},
            ValueError,
            "unknown options for dpmixture: n_sweep; allowed are n_sweeps, gibbs, split_merge, leader_sweeps",
        ),
        (
            {"search": False},
            ValueError,
            "unknown options for dpmixture: search; .* search belongs into split_merge",
        ),
        ({"n_sweeps": 0}, ValueError, "n_sweeps must be at least 1, got 0"),
        ({"leader_sweeps": -1}, ValueError, "leader_sweeps must be at least 0, got -1"),
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"atoms": {"n_scans": 2}}, ValueError, "atoms are options for a dp.DirichletProcess"),
        (
            {"gibbs": {"n_scans": 0}, "split_merge": {"sequential": 0, "random": 0}},
            ValueError,
            "nothing would move the labels",
        ),
    ],
)
def test_options_that_make_no_sense(options, error, message):
    with mixture_model(), pytest.raises(error, match=message):
        dp.DPMixtureStep(**options)
    with pytest.raises(error, match=message):
        sample(mixture_model(), dpmixture=options)


def test_standalone_options_that_make_no_sense():
    with mixture_model():
        with pytest.raises(ValueError, match="n_scans must be at least 1, got 0"):
            dp.CollapsedGibbs(n_scans=0)
        with pytest.raises(ValueError, match="sequential must be at least 0, got -2"):
            dp.SplitMerge(sequential=-2)
        with pytest.raises(ValueError, match="must not all be 0"):
            dp.SplitMerge(sequential=0, random=0)


@pytest.mark.interpreted(False)
def test_refuses_other_samplers():
    model = mixture_model()
    with model:
        with pytest.raises(NotImplementedError, match="only be sampled by the step methods of pymc_dpgmm"):
            pm.sample_smc(draws=10, chains=1, progressbar=False)
        with pytest.raises(NotImplementedError, match="only be sampled by the step methods of pymc_dpgmm"):
            pm.Metropolis([model["y_labels"]])
        with pytest.raises(ValueError, match="differentiable"):
            pm.sample(nuts_sampler="nutpie", progressbar=False)
        with pytest.raises(TypeError, match="alpha_log__ has no prior on partitions"):
            dp.CollapsedGibbs([model["alpha"]])
        pm.HalfNormal("s")
        with pytest.raises(TypeError, match="gamma prior"):
            dp.ConcentrationGibbs([model["s"]])


@pytest.mark.parametrize("alpha_prior", [None, lambda: pm.HalfNormal("alpha")])
def test_refuses_jax(alpha_prior):
    pytest.importorskip("jax", reason="JAX is not among the test requirements")
    with mixture_model(alpha_prior), pytest.raises(NotImplementedError, match="JAX backend"):
        pm.sample(5, tune=5, backend="jax", progressbar=False)


@pytest.mark.parametrize(
    ("start", "message"),
    [(np.zeros(7, dtype=int), "7 labels, but y has 40 rows"), (np.full(40, 41), r"0\.\.n-1 = 0\.\.39")],
)
def test_bad_starts(start, message):
    with pytest.raises(ValueError, match=message):
        sample(mixture_model(), initvals={"y_labels": start})


def test_starts_win():
    start = np.arange(40) % 7
    model = mixture_model()
    with model:
        step = dp.CollapsedGibbs()
    point = model.initial_point() | {"y_labels": start}
    (target,) = step.targets
    assert np.array_equal(target.state(point, target.prior(point), None).state.labels(), start)
    idata = sample(model, initvals={"y_labels": np.zeros(40, dtype=int), "alpha": 0.5}, draws=5, tune=5)
    assert idata.posterior["y_labels"].shape == (2, 5, 40)


@pytest.mark.parametrize(("n", "is_data"), [(40, False), (20_000, False), (20_000, True)])
def test_the_progress_bar_tells_rows_per_second_where_there_are_many(n, is_data):
    rows = np.random.default_rng(1).normal(size=(n, 1))
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        observed = pm.Data("rows", rows) if is_data else rows
        dp.DPMixture("y", alpha, dp.NormalInverseGamma.from_data(rows), observed=observed)
        step = dp.DPMixtureStep()
    columns, shown = step._progressbar_config(2)
    _, (statistics,) = step.step(model.initial_point())
    (update,) = step._make_progressbar_update_functions()
    told = update(statistics)
    assert set(told) == set(shown)
    # How many rows data have is not known before they are drawn.
    assert len(told) == (2 if n == 20_000 and not is_data else 1)
    assert told["y_labels_n_clusters"] == statistics["y_labels_n_clusters"]
    (column,) = columns
    assert all(f"{{task.fields[{name}]}}" in column.text_format for name in told)
    if len(told) == 2:
        number, unit = told["y_labels_rows_per_second"][:-3], told["y_labels_rows_per_second"][-3:]
        rate = float(number) * {"k/s": 1e3, "M/s": 1e6}[unit]
        assert rate == pytest.approx(n / statistics["y_labels_seconds"], rel=0.06)


def shared_alpha():
    """A gamma concentration that another density knows too, and a coefficient."""
    with pm.Model() as model:
        alpha, b = pm.Gamma("alpha", 1.0, 1.0), pm.Normal("b")
        base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
        dp.DPMixture("x", alpha, base, observed=np.arange(6.0), offset=b * np.arange(6.0) ** 2)
        pm.Normal("w", alpha, 1.0, observed=2.0)
    return model


def test_steps_are_the_same_outside_the_context_of_the_model(monkeypatch):
    """PyMC does not show the model where it asks steps what they take."""
    made = []
    own = ContinuousMove.__init__

    def told(self, model, values, parts, compile_kwargs, **options):
        own(self, model, values, parts, compile_kwargs, **options)
        made.append(({value.name for value in values}, options.get("target_accept")))

    monkeypatch.setattr(ContinuousMove, "__init__", told)
    run = {"draws": 5, "tune": 5, "chains": 1, "cores": 1, "progressbar": False, "random_seed": 1}
    run |= {"compute_convergence_checks": False, "target_accept": 0.95}
    model = shared_alpha()
    outside = pm.sample(model=model, **run)
    with model:
        inside = pm.sample(**run)
    assert made == [({"alpha_log__"}, 0.95)] * 2
    assert outside["sample_stats"]["step_size"].dims == inside["sample_stats"]["step_size"].dims


def test_frozen_models_draw_concentrations_with_the_labels():
    """What marks a concentration is lost where PyMC rebuilds a model."""
    with pm.Model() as model:
        base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
        dp.DPMixture("x", pm.Gamma("alpha", 1.0, 1.0), base, observed=np.arange(6.0))
    for own in (model, freeze_dims_and_data(model)):
        idata = sampled.sample(own, 5, tune=5, chains=1, random_seed=1, target_accept=0.9)
        assert "step_size" not in idata["sample_stats"]
