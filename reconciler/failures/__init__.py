"""What failures mean for a component: evidence, and what is tried again when. Pure."""
