"""Linear mechanisms with the weights integrated out: noise of one variance in every node, or of a variance each."""

from vcuda.models.linear.prediction import LinearPredictive
from vcuda.models.linear.score import BGe, BGeScore, EqualNoise, EqualNoiseScore, SharedNoise
from vcuda.models.protocol import Candidate, Family

FAMILY = Family(
    name="linear",
    words="linear: each variable is a weighted sum of its direct causes, plus noise",
    specs={"unequal": BGe(), "equal": EqualNoise(), "unit": EqualNoise(variance=1.0)},
    predictive=LinearPredictive,
    candidates=(
        # The first is what a fit without time for a comparison falls back on: units must not decide its directions.
        Candidate("linear", "unequal", BGe(), "linear, unequal noise", climbs=3),
        Candidate("linear", "equal", EqualNoise(), "linear, equal noise", climbs=3),
    ),
)

__all__ = ["FAMILY", "BGe", "BGeScore", "EqualNoise", "EqualNoiseScore", "LinearPredictive", "SharedNoise"]
