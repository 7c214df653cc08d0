"""The commands of `pidm-nav`, one function each."""
