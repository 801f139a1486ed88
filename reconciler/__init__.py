"""The OME manager: moves the Instances of inference workloads to new revisions without breaking two promises.

The ceiling: a component never holds more pods than its Instances plus its surge budget. The floor: an old pod leaves
rotation only after its replacement serves. `docs/architecture.md` walks through the rooms of this package.
"""
