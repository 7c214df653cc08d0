"""The theorems of the paper, checked on problems where every term is known; this folder needs only our plots."""
