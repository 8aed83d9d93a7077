"""What is chosen when the user says nothing: the family, its hyperparameters, the prior."""

from dpsearch.automatic.choice import Choice, choose, resolve_prior
from dpsearch.automatic.comparison import Comparison, compare
from dpsearch.automatic.learning import Learned, learn

__all__ = ["Choice", "Comparison", "Learned", "choose", "compare", "learn", "resolve_prior"]
