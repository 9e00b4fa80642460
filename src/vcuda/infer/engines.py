"""All engines by name; a new one is one line here."""

from __future__ import annotations

from vcuda.infer.engine import Method
from vcuda.infer.exact import Counting, Exact
from vcuda.infer.orders import Orders, OrderSampling
from vcuda.infer.straight_through import StraightThrough, Training
from vcuda.infer.variational import Climbing, Variational

ENGINES: dict[str, Method] = {
    "exact": Method(Exact, Counting),
    "orders": Method(Orders, OrderSampling),
    "variational": Method(Variational, Climbing),
    "straight-through": Method(StraightThrough, Training),
}
