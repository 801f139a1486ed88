"""The whole manager against the embedded cluster, on a driven clock."""
