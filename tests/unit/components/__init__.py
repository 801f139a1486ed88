"""From InferenceServices and runtimes to InferenceReplicas, Services and status."""
