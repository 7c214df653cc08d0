"""Where and why PIDM wins: gaps, policy fields, prediction errors, horizons, and the theory checked."""
