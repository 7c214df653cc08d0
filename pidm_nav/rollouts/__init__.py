"""Rollouts, evaluation and comparison of any policy in any vector environment."""
