"""Analyses of demonstrations: advice on agents, prediction errors, and tests of policies without an environment."""

from pidm_nav.analysis.advice import Advice, advise

__all__ = ["Advice", "advise"]
