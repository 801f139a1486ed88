"""Tests of the OME manager: unit (pure core), simulation (whole manager), control_plane (real Kubernetes)."""
