"""From an InferenceService, its runtime and operator defaults to InferenceReplicas, Services and status.

Pure up to `worker`, the one module that reads stores and writes. Nothing here knows of pods that exist.
"""
