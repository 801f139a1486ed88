"""The parts from which `deploy/generate.py` puts the CustomResourceDefinitions together."""
