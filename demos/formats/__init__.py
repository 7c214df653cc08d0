"""File formats of demonstrations: npz, Minari, robomimic's HDF5, and the paper's released recordings."""

from pidm_nav.demos.formats.minari import from_minari, to_minari
from pidm_nav.demos.formats.npz import check_output, load_demos, reserved_output, save_demos

__all__ = ["check_output", "from_minari", "load_demos", "reserved_output", "save_demos", "to_minari"]
