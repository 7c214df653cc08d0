"""Numerical checks of the paper's theorems on toy problems where every term is known."""
