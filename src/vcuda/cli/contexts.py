"""Commands about environments."""

from __future__ import annotations

from typing import Annotated

import typer

from vcuda.cli.options import Json, Run
from vcuda.cli.questions import Most
from vcuda.cli.terminal import results, say, show_json, show_table


def targets(
    run: Run,
    minimum: Annotated[float, typer.Option(min=0.0, max=1.0, help="Leave out changes below this probability.")] = 0.1,
    most: Most = 50,
    as_json: Json = False,
) -> None:
    """Which environment changed which column? For a fit with --contexts, the surest changes first."""
    from vcuda.posterior import Posterior

    posterior = Posterior.load(run)
    found = posterior.targets(minimum=minimum)
    reference = posterior.provenance["contexts"]["reference"]
    if as_json:
        show_json({"reference": reference, "targets": found.to_dict("records")})
        return
    if found.empty:
        say(results(), f"No environment differs from {reference} with a probability of {minimum:g} or more.")
        return
    say(results(), f"Changes from {reference} with a probability of {minimum:g} or more:")
    show_table(found.head(most))
