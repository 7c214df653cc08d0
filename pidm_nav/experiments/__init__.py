"""The paper's experiments: sweeps, statistics, figures."""
