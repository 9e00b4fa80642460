"""Distributions over directed acyclic graphs: always acyclic, differentiable, and cheap to sample.

``base`` holds the protocol and the prior, ``priority`` the paper's distribution, ``permutation``
Gumbel-Top-k and Gumbel-Sinkhorn, ``relaxation`` the gradient estimators, ``bulk`` the sampler for many or
very large graphs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    DAG_DISTRIBUTIONS: dict[str, type]


def __getattr__(name: str) -> Any:
    # On demand, because the distributions import JAX, which ``bulk`` and its users do not need.
    if name == "DAG_DISTRIBUTIONS":
        from vcuda.dags.permutation import SinkhornDags, TopKDags
        from vcuda.dags.priority import PriorityDags

        return {spec.name: spec for spec in (PriorityDags, TopKDags, SinkhornDags)}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
