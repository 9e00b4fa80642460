"""All engines by name; a new one is one line here."""

from __future__ import annotations

from vcuda.infer.method import Method

ENGINES: dict[str, Method] = {
    "exact": Method("vcuda.infer.exact", "Exact", "Counting", "every graph is counted"),
    "orders": Method(
        "vcuda.infer.orders", "Orders", "OrderSampling", "tempered sampling over the orders of the variables"
    ),
    "variational": Method(
        "vcuda.infer.variational",
        "Variational",
        "Climbing",
        "the nearest member of a family of distributions over graphs",
    ),
    "straight-through": Method(
        "vcuda.infer.straight_through",
        "StraightThrough",
        "Training",
        "a distribution over graphs, trained by gradient",
    ),
}
