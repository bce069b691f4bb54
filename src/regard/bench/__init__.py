"""Measurements: answers checked first, then medians of calls in turn, in one process."""
