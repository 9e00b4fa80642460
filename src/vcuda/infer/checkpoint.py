"""What a fit has worked out so far, so that one that was killed need not do it again.

Engines are deterministic functions of table, spec and seed. So a fit is resumed by running the same program once more,
in which every expensive step that the journal knows is read instead of computed: it ends in the same posterior, bit for
bit. A step is known by its name and by a fingerprint of all that it was ``given``: where a time limit or an interrupt
made an earlier run take another way, its steps do not fit and are computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import jax
import numpy as np

from vcuda.models.caching import SetMemory
from vcuda.models.caching import cached as cached_sets
from vcuda.models.protocol import LocalScore

Arrays = Mapping[str, np.ndarray]
Drawn = TypeVar("Drawn")


class Checkpointer(Protocol):
    """Results of expensive steps by name; a later one of the same name takes the place of the earlier."""

    def recall(self, name: str, given: str) -> Arrays | None:
        """The arrays that were kept under this name, if they were made from the same; None otherwise."""
        ...

    def keep(self, name: str, given: str, arrays: Callable[[], Arrays]) -> None:
        """Keep what a step led to; ``arrays`` is called only where somebody remembers."""
        ...

    def scope(self, prefix: str) -> Checkpointer:
        """A part of the journal with names of its own."""
        ...

    def forget(self) -> None:
        """Nothing under these names will be asked for again."""
        ...

    def sets(self, given: str) -> SetMemory | None:
        """A memory for the scores of sets of parents, shared by all that are ``given`` the same; None for none."""
        ...


class NoCheckpoint:
    """A journal that keeps nothing: the default everywhere."""

    def recall(self, name: str, given: str) -> Arrays | None:
        return None

    def keep(self, name: str, given: str, arrays: Callable[[], Arrays]) -> None:
        pass

    def scope(self, prefix: str) -> Checkpointer:
        return self

    def forget(self) -> None:
        pass

    def sets(self, given: str) -> SetMemory | None:
        return None


NO_CHECKPOINT = NoCheckpoint()


def no_checkpoint() -> Checkpointer:
    """What a journal becomes in another process, which has nothing to write into."""
    return NO_CHECKPOINT


def cached(
    checkpointer: Checkpointer,
    name: str,
    given: str,
    work: Callable[[], Arrays],
    *,
    complete: Callable[[], bool] = lambda: True,
) -> Arrays:
    """The arrays that ``work`` returns, or returned before the fit was resumed.

    What is not ``complete`` when it is done, because time was over, is not kept.
    """
    found = checkpointer.recall(name, given)
    if found is None:
        done = found = work()
        if complete():
            checkpointer.keep(name, given, lambda: done)
    return found


def fingerprint(*parts: Any) -> str:
    """A digest of arrays, generators, and everything whose ``repr`` tells all of it; sequences go by their members."""
    digest = hashlib.sha256()
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()[:32]


def _add(digest: Any, part: Any) -> None:
    if isinstance(part, jax.Array):
        part = np.asarray(part)
    if isinstance(part, np.random.Generator):
        part = generator_state(part)
    if isinstance(part, np.ndarray):
        digest.update(f"{part.dtype} {part.shape}".encode())
        digest.update(part.tobytes())
    elif isinstance(part, tuple | list):
        digest.update(f"[{len(part)}".encode())
        for member in part:
            _add(digest, member)
    else:
        digest.update(f"{type(part).__name__} {part!r};".encode())


def generator_state(rng: np.random.Generator) -> np.ndarray:
    """The state of NumPy's default generator as (6,) whole numbers."""
    found = rng.bit_generator.state
    if found["bit_generator"] != "PCG64":
        raise ValueError(f"expected a generator of kind PCG64, found {found['bit_generator']}")
    state, step, low = found["state"]["state"], found["state"]["inc"], (1 << 64) - 1
    words = [state >> 64, state & low, step >> 64, step & low, found["has_uint32"], found["uinteger"]]
    return np.array(words, dtype=np.uint64)


def set_generator(rng: np.random.Generator, words: np.ndarray) -> None:
    """Put a generator into the state that :func:`generator_state` told."""
    high, low, step_high, step_low, has_uint32, uinteger = (int(word) for word in words)
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": step_high << 64 | step_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }


def generator_of(words: np.ndarray) -> np.random.Generator:
    """A generator in the state that :func:`generator_state` gave."""
    rng = np.random.default_rng(0)
    set_generator(rng, words)
    return rng


class LastDraw(Generic[Drawn]):
    """What was drawn last by a generator whose state is stored, remembered because many chunks of steps may need it."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Drawn, np.ndarray] | None = None
        self._rng: np.random.Generator | None = None

    def of(self, words: np.ndarray, draw: Callable[[np.random.Generator], Drawn]) -> tuple[Drawn, np.ndarray]:
        """What ``draw`` gives by the generator of these words, and the words of the generator after that."""
        before = words.tobytes()
        if self._last is None or self._last[0] != before:
            goes_on = self._last is not None and self._last[2].tobytes() == before
            rng = self._rng if goes_on and self._rng is not None else generator_of(words)
            drawn = draw(rng)
            self._last, self._rng = (before, drawn, generator_state(rng)), rng
        return self._last[1:]


def ragged(prefix: str, members: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of whole numbers of different lengths, as two arrays."""
    joined = np.concatenate([np.zeros(0, dtype=np.int64), *members]).astype(np.int64)
    return {f"{prefix} sizes": np.array([member.size for member in members], dtype=np.int64), f"{prefix} all": joined}


def split(prefix: str, arrays: Arrays) -> list[np.ndarray]:
    """The arrays that :func:`ragged` joined."""
    ends = np.cumsum(arrays[f"{prefix} sizes"])
    return [np.array(part) for part in np.split(arrays[f"{prefix} all"], ends)[: ends.size]]


def tree_arrays(prefix: str, tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree of arrays and numbers by their number."""
    return {f"{prefix} {number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}


def tree_like(prefix: str, like: Any, arrays: Arrays) -> Any:
    """The tree that :func:`tree_arrays` told, of the same structure as another one, and where that one is."""
    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, [_placed(arrays[f"{prefix} {k}"], leaf) for k, leaf in enumerate(leaves)])


def _placed(array: np.ndarray, like: Any) -> Any:
    if isinstance(like, bool | int | float):
        return type(like)(array)
    if not isinstance(like, jax.Array):
        return array
    # An array that is tied to its one device would have programs compiled anew.
    return jax.device_put(array, like.sharding if len(like.sharding.device_set) > 1 else None)


def remembering(score: LocalScore, checkpointer: Checkpointer) -> LocalScore:
    """A score that asks the checkpoint before it computes a slow set; others as they are.

    The sets that the checkpoint knows already are not preloaded: lazy tables hold those that were asked for.
    """
    remembered: LocalScore = cached_sets(score, lambda content: checkpointer.sets(fingerprint(*content)))
    return remembered
