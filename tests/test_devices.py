"""One posterior whatever the machine: one device or eight, and whatever precision JAX has by default."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from vcuda.infer.compilation import double_precision, single_precision
from vcuda.infer.devices import devices_of, divide, divided, map_divided, mesh_for, place

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
# Everything that a user may have set for programs of their own, and that would change ours.
OTHER_SETTINGS = {
    "JAX_ENABLE_X64": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_THREEFRY_PARTITIONABLE": "0",
}
# Replicas, restarts, blocks of particles, and chains: how many of eight devices share them.
USED = {
    "orders": 4,
    "orders-bge": 8,
    "variational": 4,
    "variational-bge": 2,
    "straight-through": 8,
    "dibs": None,
    "bayesdag": 4,
}
# Orders and particles are the same bit for bit. Restarts are trained in programs that the compiler arranges by how many
# there are on a device: it adds up in another order, and the last digit of a step differs. After some tens of steps
# that was 1e-13 in double precision and 3e-7 in single precision on edges and parameters; the rest is room for other
# processors. What all chains of BayesDAG teach their helper is added up by devices: 3e-8 after a hundred steps. A graph
# drawn otherwise, or a restart with other random numbers, would change more than 1e-3.
TOLERANCE = {"variational": 1e-9, "variational-bge": 1e-9, "straight-through": 1e-5, "bayesdag": 1e-5}


def fit_all(folder: Path) -> None:
    """Fit a table by every engine that is divided among devices, and write all numbers; in a process of its own."""
    import warnings

    import vcuda
    from vcuda.baselines import dibs_program
    from vcuda.baselines.bayesdag import BayesDag
    from vcuda.baselines.dibs import Dibs

    warnings.simplefilter("ignore", vcuda.ConvergenceWarning)  # they are too short to converge
    dibs_program.BLOCK_ENTRIES = 2 * 8 * 6**2  # so that there is more than one block of particles
    table = vcuda.simulate("er", nodes=6, edges=6, rows=120, test_rows=20, seed=1)
    orders = {"sweeps": 30, "annealing": 20, "max_sweeps": 30}
    fits = {
        "orders": {"noise": "equal", "engine": vcuda.Orders(replicas=4, **orders)},
        "orders-bge": {"noise": "unequal", "engine": vcuda.Orders(replicas=8, **orders)},
        "variational": {"noise": "equal", "engine": vcuda.Variational(steps=12, restarts=4)},
        "variational-bge": {"noise": "unequal", "engine": vcuda.Variational(steps=12, restarts=2)},
        "straight-through": {"engine": vcuda.StraightThrough(epochs=3, check_every=2, restarts=8)},
        "dibs": {"model": "auto", "engine": Dibs(particles=16, steps=5, samples=8)},
        "bayesdag": {
            "model": "auto",
            "engine": BayesDag(chains=4, samples=8, thin=3, epochs=3, sparsity=10.0, sinkhorn_iterations=50),
        },
    }
    seen, arrays = {}, {}
    for name, options in fits.items():
        posterior = vcuda.fit(table.train, **{"model": "linear", **options})
        seen[name] = posterior.diagnostics.get("devices")
        found = {
            "edges": posterior.edge_probabilities.to_numpy(),
            **posterior.trace,
            **posterior.graph_posterior.arrays(),
        }
        if name == "straight-through":
            found["predicted"] = posterior.predict(table.test, graphs=4).to_numpy()
        arrays |= {f"{name}/{part}": np.asarray(array) for part, array in found.items()}
    np.savez(folder / "found.npz", **arrays)
    (folder / "devices.json").write_text(json.dumps([jax.local_device_count(), seen]))


def run_elsewhere(folder: Path, settings: dict[str, str]) -> tuple[dict[str, np.ndarray], int, dict[str, int]]:
    """All numbers of :func:`fit_all` in a process with these settings, the devices it has, and those that were used."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_devices as here; "
    code += f"from pathlib import Path; here.fit_all(Path({str(folder)!r}))"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    subprocess.run([sys.executable, "-c", code], env=clean | settings, check=True, timeout=600)
    with np.load(folder / "found.npz") as stored:
        found = {name: stored[name] for name in stored.files}
    devices, used = json.loads((folder / "devices.json").read_text())
    return found, devices, used


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return run_elsewhere(tmp_path_factory.mktemp("usual"), {})


@pytest.mark.slow
def test_eight_devices_give_the_posterior_of_one(usual, tmp_path):
    expected, devices, used = usual
    assert devices == 1
    assert set(used.values()) == {1, None}
    found, devices, used = run_elsewhere(tmp_path, EIGHT)
    assert devices == 8
    assert used == USED
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        tolerance = TOLERANCE.get(name.split("/")[0], 0.0)
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name, strict=True)


@pytest.mark.slow
def test_settings_of_jax_change_nothing(usual, tmp_path):
    found, _, _ = run_elsewhere(tmp_path, OTHER_SETTINGS)
    expected = usual[0]
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name, strict=True)


def test_precision_is_ours_inside_and_the_users_outside():
    before = jax.numpy.zeros(1).dtype
    with double_precision():
        assert jax.numpy.zeros(1).dtype == np.float64
        with single_precision():
            assert jax.numpy.zeros(1).dtype == np.float32
            assert jax.config.jax_default_matmul_precision == "highest"
        assert jax.numpy.zeros(1).dtype == np.float64
    assert jax.numpy.zeros(1).dtype == before
    assert jax.config.jax_default_matmul_precision is None


def test_one_device_divides_nothing():
    if jax.local_device_count() > 1:
        pytest.skip("there are several devices here")
    mesh = mesh_for(8)
    assert mesh is None
    assert devices_of(mesh) == 1

    def double(array):
        return 2 * array

    assert divide(double, mesh, divided(), divided()) is double
    np.testing.assert_array_equal(place(np.arange(3), mesh), np.arange(3))
    np.testing.assert_array_equal(map_divided(lambda piece, shift: piece + shift, np.arange(3), 2), np.arange(3) + 2)
