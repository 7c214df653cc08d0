"""The paper's identities and inequalities on problems where every term is known."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav.commands.analysis import Theory
from pidm_nav.theory import report as theory
from pidm_nav.theory.gaussian import GaussianPredictor, LinearGaussian
from pidm_nav.theory.tabular import TabularProblem
from pidm_nav.theory.terms import Measured, measured_efficiency, sample_efficiency, samples_needed
from pidm_nav.theory.tracking import Tracking

CONTROLS = (0.0, 0.3, 1.0, 2.5)
SIZES = np.unique(np.geomspace(20, 1200, 60).astype(np.int64))


def problem_of(seed: int) -> TabularProblem:
    rng = np.random.default_rng(seed)
    return TabularProblem.random(rng, *rng.integers(2, 6, size=3))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def assert_within(measured: Measured, predicted: float, errors: float = 4.0) -> None:
    assert measured.error > 0
    assert abs(measured.value - predicted) < errors * measured.error, (measured, predicted)


# Theorem 1 and its cross-entropy version


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_theorem_1_is_an_identity_and_delta_is_not_negative(seed):
    problem = problem_of(seed)
    delta = problem.optimal_gap
    assert delta >= 0
    enumerated = (problem.joint * problem.error_difference).sum()  # EPE(BC) - EPE(IDM; p*)
    assert enumerated == pytest.approx(delta, abs=1e-12)
    total = problem.states @ problem.bc_var
    inside = (problem.states[:, None] * problem.futures * problem.idm_var).sum()
    assert total - inside == pytest.approx(delta, abs=1e-12)  # the law of total variance


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_the_cross_entropy_gap_is_the_mutual_information_and_the_expected_divergence(seed):
    problem = problem_of(seed)
    gap = problem.cross_entropy_gap
    assert gap >= 0
    assert (problem.joint * problem.log_ratio).sum() == pytest.approx(gap, abs=1e-12)
    joint = problem.joint / problem.states[:, None, None]  # p(s', a | s)
    independent = problem.futures[:, :, None] * problem.marginal[:, None, :]
    information = problem.states @ (joint * np.log(joint / independent)).sum((1, 2))
    assert information == pytest.approx(gap, abs=1e-9)


def test_a_future_that_tells_nothing_closes_both_gaps():
    problem = TabularProblem.telling(0.0)
    assert problem.optimal_gap == pytest.approx(0, abs=1e-12)
    assert problem.cross_entropy_gap == pytest.approx(0, abs=1e-12)
    gaps = [TabularProblem.telling(strength).optimal_gap for strength in (0, 0.5, 1, 2)]
    assert gaps == sorted(gaps) and gaps[-1] > 0.5


def test_a_future_that_tells_the_action_leaves_the_idm_no_error():
    problem = TabularProblem(np.ones(1), np.array([[0.5, 0.5]]), np.eye(2)[None], np.array([-1.0, 1.0]))
    assert problem.optimal_gap == pytest.approx(1.0)  # all of Var(a|s)
    assert problem.cross_entropy_gap == pytest.approx(np.log(2))


@pytest.mark.parametrize("seed", range(3))
def test_tabular_samples_show_both_gaps(seed, rng):
    problem = problem_of(seed)
    squared, entropy = problem.measured_optimal_gap(100_000, rng)
    assert_within(squared, problem.optimal_gap)
    assert_within(entropy, problem.cross_entropy_gap)


@pytest.mark.parametrize("control", CONTROLS[1:])
def test_gaussian_samples_show_both_gaps(control, rng):
    problem = LinearGaussian(control=control, dynamics_std=0.8, policy_std=1.3)
    squared, entropy = problem.measured_optimal_gap(100_000, rng)
    assert_within(squared, problem.optimal_gap)
    assert_within(entropy, problem.cross_entropy_gap)
    assert problem.optimal_gap == pytest.approx(problem.policy_std**2 - problem.idm_var)


def test_the_gaussian_idm_is_the_regression_of_the_action_on_both_states(rng):
    problem = LinearGaussian(control=0.8, dynamics_std=0.5, policy_std=1.2, gain=-0.4, drift=1.1, state_std=2.0)
    states, actions, futures = problem.sample(rng, (400_000,))
    x = np.stack([states, futures], axis=1)
    coefficients = np.linalg.lstsq(x, actions, rcond=None)[0]
    np.testing.assert_allclose(coefficients, problem.idm_coefficients, atol=0.01)
    assert np.var(actions - x @ coefficients) == pytest.approx(problem.idm_var, rel=0.02)
    surprise = futures - problem.true_predictor.slope * states
    assert surprise.std() == pytest.approx(problem.true_predictor.std, rel=0.01)
    assert np.corrcoef(surprise, states)[0, 1] == pytest.approx(0, abs=0.01)


# Corollary 1


@pytest.mark.parametrize(("seed", "samples", "ridge"), [(0, 10, 0.0), (1, 30, 1.0), (2, 100, 3.0)])
def test_corollary_1_predicts_the_gap_of_learned_tabular_estimators(seed, samples, ridge, rng):
    problem = TabularProblem.random(np.random.default_rng(seed))
    predictor = problem.learned_predictor(10, rng)
    terms = problem.gap_terms(predictor, (samples, 2) * samples, ridge)
    measured = problem.measured_gap(predictor, (samples, 2) * samples, rng, ridge, datasets=5000)
    assert measured.error < 0.005
    assert_within(measured, terms.total)


def test_corollary_1_needs_each_of_its_terms(rng):
    problem = TabularProblem.random(np.random.default_rng(0))
    predictor = problem.learned_predictor(10, rng)
    terms = problem.gap_terms(predictor, (10, 20))
    measured = problem.measured_gap(predictor, (10, 20), rng, datasets=20_000)
    assert_within(measured, terms.total)
    for part in (terms.optimal, terms.variance, terms.bias, terms.shift):
        assert abs(measured.value - (terms.total - part)) > 6 * measured.error


@pytest.mark.parametrize(("control", "samples", "shrink"), [(0.3, 8, 1.0), (1.0, 20, 0.7), (2.0, 60, 0.9)])
def test_corollary_1_predicts_the_gap_of_learned_linear_estimators(control, samples, shrink, rng):
    problem = LinearGaussian(control=control)
    predictor = problem.learned_predictor(15, rng)
    terms = problem.gap_terms(predictor, (samples, samples + 2), shrink)
    measured = problem.measured_gap(predictor, (samples, samples + 2), rng, shrink, datasets=8000)
    assert_within(measured, terms.total)
    assert terms.shift == 0  # the same noise everywhere


def test_the_gap_of_learned_estimators_tends_to_delta_with_data_and_a_true_predictor():
    problem = TabularProblem.random(np.random.default_rng(0))
    terms = problem.gap_terms(problem.futures, (20_000, 20_000))
    assert terms.total == pytest.approx(problem.optimal_gap, abs=2e-3)
    assert terms.shift == pytest.approx(0, abs=1e-12)
    linear = LinearGaussian(control=1.0)
    terms = linear.gap_terms(linear.true_predictor, (10_000, 10_000))
    assert terms.total == pytest.approx(linear.optimal_gap, abs=1e-3)


def test_few_samples_or_a_poor_predictor_can_make_pidm_the_worse_one():
    problem = LinearGaussian(control=0.3)
    assert problem.gap_terms(problem.true_predictor, (8, 8)).total < 0 < problem.optimal_gap
    poor = GaussianPredictor(slope=5.0, std=4.0)
    assert problem.gap_terms(poor, (50, 50)).total < 0


def test_the_shift_can_help_pidm_too():
    problem = TabularProblem.random(np.random.default_rng(0))
    easy = np.eye(problem.futures.shape[1])[problem.idm_var.argmin(axis=1)]  # always the least noisy future
    hard = np.eye(problem.futures.shape[1])[problem.idm_var.argmax(axis=1)]
    assert problem.gap_terms(easy, (50, 50)).shift > 0
    assert problem.gap_terms(hard, (50, 50)).shift < 0


# Assumption 1 broken


def test_assumption_1_is_checked():
    problem, predictor = theory.outside_support()
    with pytest.raises(ValueError, match="breaks Assumption 1"):
        problem.gap_terms(predictor, (60, 60))


def test_corollary_1_fails_outside_the_support_by_the_error_made_there(rng):
    problem, predictor = theory.outside_support(mass=0.2)
    terms = problem.gap_terms(predictor, (60, 60), check_support=False)
    measured = problem.measured_gap(predictor, (60, 60), rng, datasets=5000)
    assert terms.total - measured.value > 50 * measured.error
    assert_within(measured, terms.total - problem.outside_error(predictor))


def test_outside_the_support_equal_data_hide_unequal_gaps(rng):
    problem, predictor = theory.outside_support(mass=0.2)
    actions = problem.actions.copy()
    actions[:, -1] = np.eye(len(problem.values))[len(problem.values) // 2]  # there the expert would stand still
    other = TabularProblem(problem.states, problem.futures, actions, problem.values)
    np.testing.assert_array_equal(problem.joint, other.joint)  # no dataset can tell the two apart
    gaps = [p.measured_gap(predictor, (60, 60), rng, datasets=3000) for p in (problem, other)]
    assert gaps[1].value - gaps[0].value > 20 * np.hypot(gaps[0].error, gaps[1].error)


# Theorem 2 and Lemma 1


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_lemma_1_the_idm_is_never_less_informative(seed):
    problem = problem_of(seed)
    direction = np.random.default_rng(seed).normal(size=problem.actions.shape)
    for h in (None, direction):
        bc, idm = problem.fisher(h)
        assert 0 <= bc <= idm * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_fisher_informations_are_the_curvature_of_the_likelihoods(seed):
    # Independent of the posterior average in the lemma's proof: differences of the log policies themselves.
    problem, step = problem_of(seed), 1e-4
    direction = np.random.default_rng(seed).normal(size=problem.actions.shape)
    ahead, behind = (problem.tilted(xi, direction) for xi in (step, -step))
    score = (np.log(ahead.marginal) - np.log(behind.marginal)) / (2 * step)
    idm_score = (np.log(ahead.actions) - np.log(behind.actions)) / (2 * step)
    bc, idm = problem.fisher(direction)
    assert (problem.joint.sum(1) * score**2).sum() == pytest.approx(bc, rel=1e-5)
    assert (problem.joint * idm_score**2).sum() == pytest.approx(idm, rel=1e-5)


def test_lemma_1_is_tight_when_the_future_tells_nothing():
    bc, idm = TabularProblem.telling(0.0).fisher()
    assert idm == pytest.approx(bc)
    problem = LinearGaussian(control=0.0)
    assert problem.fisher()[1] == pytest.approx(problem.fisher()[0])


@pytest.mark.parametrize("control", CONTROLS)
def test_gaussian_fisher_informations_match_sampled_scores(control, rng):
    problem = LinearGaussian(control=control, state_std=1.4)
    states, actions, futures = problem.sample(rng, (100_000,))
    bc = states * (actions - problem.gain * states) / problem.policy_std**2
    mean = problem.idm_coefficients @ np.stack([states, futures])
    idm = states * (actions - mean) / problem.idm_var
    fisher_bc, fisher_idm = problem.fisher()
    assert_within(Measured.mean_of(bc**2), fisher_bc)
    assert_within(Measured.mean_of(idm**2), fisher_idm)
    assert fisher_idm >= fisher_bc
    # eta = exp(2 I(a; s'|s)): in this family the information about the action is the gain in samples.
    assert fisher_idm / fisher_bc == pytest.approx(np.exp(2 * problem.cross_entropy_gap))


@pytest.mark.parametrize("control", CONTROLS)
def test_without_assumption_4_there_is_no_gain_to_have(control):
    # When the state predictor moves with the parameter, IDM and predictor together know what BC knows.
    problem = LinearGaussian(control=control, state_std=1.4)
    assert sum(problem.information_split) == pytest.approx(problem.fisher()[0])


@pytest.mark.parametrize("control", (0.5, 1.0, 2.0))
def test_theorem_2_predicts_the_samples_needed_by_linear_estimators(control, rng):
    problem = LinearGaussian(control=control)
    mse = 1 / (120 * problem.fisher()[1])
    eta = sample_efficiency(problem.fisher(), mse)
    assert eta == pytest.approx(1 + control**2)
    measured = measured_efficiency(SIZES, *problem.squared_errors(SIZES, 4000, rng), mse)
    assert measured.error < 0.05 * eta
    assert abs(measured.value - eta) < 3 * measured.error + 0.02 * eta


@pytest.mark.parametrize(("shrink_bc", "shrink_idm"), [(0.95, 1.0), (1.0, 0.95), (0.95, 0.95)])
def test_theorem_2_predicts_the_effect_of_biases(shrink_bc, shrink_idm, rng):
    problem = LinearGaussian(control=1.0)
    mse = 1 / (120 * problem.fisher()[1])
    slopes = shrink_bc - 1, shrink_idm - 1
    biases = slopes[0] * problem.gain, slopes[1] * problem.gain
    eta = sample_efficiency(problem.fisher(), mse, biases, slopes)
    errors = problem.squared_errors(SIZES, 4000, rng, (shrink_bc, shrink_idm))
    measured = measured_efficiency(SIZES, *errors, mse)
    assert abs(measured.value - eta) < 3 * measured.error + 0.02 * eta
    if shrink_bc == shrink_idm:  # Corollary 2: equal biases cancel
        assert eta == pytest.approx(2.0)
    else:  # and unequal ones matter more than the sampling error
        assert abs(measured.value - 2.0) > 3 * measured.error


@pytest.mark.parametrize("strength", (1.0, 2.0))
def test_theorem_2_predicts_the_samples_needed_by_tabular_estimators(strength, rng):
    problem = TabularProblem.telling(strength)
    bc, idm = problem.fisher()
    errors = problem.squared_errors(SIZES[::2], 2000, rng)
    eta, mse = idm / bc, 1 / (150 * idm)
    measured = measured_efficiency(SIZES[::2], *errors, mse)
    assert abs(measured.value - eta) < 3 * measured.error + 0.03 * eta
    assert measured.value > 1.2


def test_an_error_below_the_bias_is_refused():
    with pytest.raises(ValueError, match="below a squared bias"):
        sample_efficiency((1.0, 2.0), mse=0.01, bias=(0.1, 0.0))


def test_samples_needed_interpolates_and_refuses_errors_off_the_curve():
    sizes = np.array([10, 100, 1000])
    assert samples_needed(sizes, 1 / sizes, 1 / 50) == pytest.approx(50)
    for target in (1.0, 1e-6):
        with pytest.raises(ValueError, match="widen the sizes"):
            samples_needed(sizes, 1 / sizes, target)


# The tracking problem


def test_three_agents_with_equal_prediction_errors_drift_apart(rng):
    problem, samples, steps, runs = Tracking.equal_errors(50), 50, 4, 40_000
    agents = {"bc": problem.bc_gains(samples, runs, rng), "pidm": 1.0, "no pull": 0.0}
    measured = {name: problem.measured(agent, steps, rng, runs) for name, agent in agents.items()}
    error = problem.bc_prediction_error(samples)
    assert problem.prediction_error(1.0) == pytest.approx(error)
    assert problem.prediction_error(0.0) == pytest.approx(error)
    for prediction, _ in measured.values():
        assert_within(prediction, error)
    assert_within(measured["bc"][1], problem.bc_closed_loop_error(samples, steps))
    assert_within(measured["pidm"][1], 1.0)
    assert_within(measured["no pull"][1], 4.0)  # a random walk
    assert measured["pidm"][1].value < 0.5 * measured["bc"][1].value


@pytest.mark.parametrize("target_std", (0.0, 0.7))
@pytest.mark.parametrize("pull", (0.0, 0.3, 1.0, 1.7, 2.1))
def test_pidm_in_closed_loop_is_as_computed_for_every_pull(pull, target_std, rng):
    problem = Tracking(gain=0.2, demo_std=0.6, action_std=0.8, noise_std=0.5, target_std=target_std)
    prediction, deviation = problem.measured(pull, 12, rng, 20_000)
    assert_within(prediction, problem.prediction_error(pull))
    assert_within(deviation, problem.closed_loop_error(pull, 12))


@pytest.mark.parametrize("target_std", (0.0, 0.3, 1.0, 4.0))
def test_the_best_pull_falls_from_one_as_the_predictor_gets_noisier(target_std):
    problem = Tracking(noise_std=0.8, target_std=target_std)
    pulls = np.linspace(0.01, 1.99, 1000)
    errors = [problem.closed_loop_error(pull, 2000) for pull in pulls]
    assert problem.best_pull == pytest.approx(pulls[np.argmin(errors)], abs=2e-3)
    assert problem.closed_loop_error(problem.best_pull, 2000) == pytest.approx(0.64 / problem.best_pull)
    assert problem.best_pull == 1 if target_std == 0 else problem.best_pull < 1
    assert problem.closed_loop_error(2.1, 400) > 1e6  # above 2, every correction overshoots by more than it corrects


def test_prediction_error_prefers_the_demonstrators_gain_and_not_the_one_that_steers_back():
    problem = Tracking(gain=0.2)  # demonstrators who correct less than half of a deviation
    predicts = [problem.prediction_error(pull) for pull in (0.2, 0.0, 1.0)]
    assert predicts == sorted(predicts)
    acts = [problem.closed_loop_error(pull, 50) for pull in (1.0, 0.2, 0.0)]
    assert acts == sorted(acts)


def test_demonstrations_that_hardly_vary_do_not_teach_bc_to_steer_back():
    calm, lively = (Tracking(demo_std=std) for std in (0.05, 1.0))
    assert calm.bc_prediction_error(50) == lively.bc_prediction_error(50)
    assert calm.bc_closed_loop_error(50, 3) > 10 * lively.bc_closed_loop_error(50, 3)
    with pytest.raises(ValueError, match="give over 98"):
        calm.bc_closed_loop_error(50, 50)


# Bad problems, and the report


def test_bad_problems_are_refused_in_one_sentence():
    good = TabularProblem.random(np.random.default_rng(0), 2, 3, 4)
    with pytest.raises(ValueError, match=r"\(2, 3, 4\); the other arrays need \(2, 3, 5\)"):
        TabularProblem(good.states, good.futures, good.actions, np.arange(5.0))
    with pytest.raises(ValueError, match="futures are negative or do not sum to 1"):
        TabularProblem(good.states, 2 * good.futures, good.actions, good.values)
    with pytest.raises(ValueError, match="finite variance"):
        LinearGaussian().gap_terms(LinearGaussian().true_predictor, (2, 10))


@pytest.fixture(scope="module")
def rows():
    return theory.theory_report(np.random.default_rng(1), fast=True)


def test_every_check_of_the_report_holds(rows):
    assert [row for row in rows if not row["holds"]] == []
    checks = {"Theorem 1", "Cross entropy", "Corollary 1", "Assumption 1 broken", "Lemma 1", "Theorem 2"}
    assert {row["check"] for row in rows} == checks | {"Prediction error", "Closed-loop error"}
    assert {row["problem"] for row in rows if row["check"] == "Theorem 2"} == {"tabular", "linear-Gaussian"}


def test_a_check_that_fails_is_said_to_fail():
    row = theory.compare("Theorem 1", "tabular", "", 1.0, "=", Measured(1.5, 0.1))
    assert not row["holds"]
    assert theory.compare("Lemma 1", "tabular", "", 1.0, ">=", Measured(0.9, 0.0))["holds"] is False
    assert theory.compare("Assumption 1 broken", "tabular", "", 1.0, "!=", Measured(1.1, 0.1))["holds"] is False


def test_the_command_writes_a_table_with_all_digits_and_a_picture_and_nothing_else(rows, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(theory, "theory_report", lambda rng, fast: rows)
    Theory(out=tmp_path).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theory.csv", "theory.png"]
    with (tmp_path / "theory.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows) and float(table[0]["predicted"]) == rows[0]["predicted"]
    assert (tmp_path / "theory.png").read_bytes().startswith(b"\x89PNG")
    assert "Theorem 2" in capsys.readouterr().out
