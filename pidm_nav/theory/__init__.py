"""The theorems of the paper, checked on problems where every term is known; this folder needs nothing else of ours."""

from pidm_nav.theory.report import run, theory_report

__all__ = ["run", "theory_report"]
