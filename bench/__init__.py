"""Measurements on a real control plane; `python -m bench` runs them."""
