"""A process that answers questions: lines of JSON in, lines of JSON out. See `vcuda.app.workers`."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from typing import Any


def main() -> None:
    # Ctrl-C in the terminal is for the server, which closes our input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print goes to standard error: standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    from vcuda.app.answers import QUESTIONS

    for line in sys.stdin:
        asked = json.loads(line)
        answers.write(json.dumps(_answer(QUESTIONS[asked["question"]], asked["arguments"])) + "\n")
        answers.flush()


def _answer(question: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    from vcuda.errors import VcudaError

    try:
        return {"answer": question(**arguments)}
    except VcudaError as error:
        details = {"columns": [one._asdict() for one in getattr(error, "columns", ())]}
        details["faults"] = list(getattr(error, "faults", ()))
        return {"refused": str(error), "details": details}
    except OSError as error:
        return {"refused": f"the operating system reports: {error.strerror or error}"}
    except MemoryError:
        return {"refused": "there is too little memory for this: close other programs, or take a smaller table"}
    except Exception as error:
        return {"refused": f"an unexpected error, which is a fault of vcuda: {type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
