"""The same scenarios against a real Kubernetes control plane."""
