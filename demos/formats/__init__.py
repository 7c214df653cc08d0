"""Demonstrations on disk: our own npz, Minari, the recordings of the paper."""
