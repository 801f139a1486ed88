"""How Instances move: one module a strategy, one for abandonment, one for who moves next, one for creation and scale.

All pure: rows and pods in, rows and effects out.
"""
