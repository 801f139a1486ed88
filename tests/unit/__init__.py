"""Tables over the pure core."""
