"""Which agent suits demonstrations and why: advice, prediction errors, horizons, and what policies can be asked."""

from pidm_nav.analysis.advice import Advice, advise

__all__ = ["Advice", "advise"]
