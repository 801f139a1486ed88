"""What an operator applies, and the generator of its CustomResourceDefinitions."""
