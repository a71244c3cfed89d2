"""Where handlers run."""
