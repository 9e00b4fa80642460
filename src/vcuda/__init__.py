"""Which variable causes which, and how sure can we be? A posterior over causal graphs from a table.

The public names stand in the order in which data goes through them: a table is checked; a model, a prior and
an engine are chosen; `fit` gives a `Posterior`; `evaluate` compares it with a graph that is known. Each name
is imported when it is first used, so that ``import vcuda`` costs next to nothing. The specs of other methods, to
compare with, are in ``vcuda.baselines``, and figures in ``vcuda.plots``.
"""

# Type checkers take it for true. To import the module typing takes 10 ms, in which Ctrl-C would get no answer.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vcuda import baselines as baselines
    from vcuda.cluster import local_cluster as local_cluster
    from vcuda.dags.base import DagPrior as DagPrior
    from vcuda.dags.base import UniformDags as UniformDags
    from vcuda.dags.permutation import SinkhornDags as SinkhornDags
    from vcuda.dags.permutation import TopKDags as TopKDags
    from vcuda.dags.priority import PriorityDags as PriorityDags
    from vcuda.data.dataset import Dataset as Dataset
    from vcuda.data.knowledge import Knowledge as Knowledge
    from vcuda.data.library import read_graph as read_graph
    from vcuda.data.library import write_graph as write_graph
    from vcuda.data.paper_tables import paper_dataset as paper_dataset
    from vcuda.data.reading import as_dataset as as_dataset
    from vcuda.data.simulate import Simulation as Simulation
    from vcuda.data.simulate import simulate as simulate
    from vcuda.errors import ClusterError as ClusterError
    from vcuda.errors import ConfigError as ConfigError
    from vcuda.errors import ConvergenceWarning as ConvergenceWarning
    from vcuda.errors import DataError as DataError
    from vcuda.errors import KnowledgeError as KnowledgeError
    from vcuda.errors import MissingExtraError as MissingExtraError
    from vcuda.errors import ModelCheckWarning as ModelCheckWarning
    from vcuda.errors import RunError as RunError
    from vcuda.errors import VcudaError as VcudaError
    from vcuda.estimator import CausalPosterior as CausalPosterior
    from vcuda.fitting.fit import fit as fit
    from vcuda.infer.exact import Exact as Exact
    from vcuda.infer.orders import Orders as Orders
    from vcuda.infer.progress import Progress as Progress
    from vcuda.infer.straight_through import StraightThrough as StraightThrough
    from vcuda.infer.variational import Variational as Variational
    from vcuda.metrics import evaluate as evaluate
    from vcuda.models.additive import AdditiveBasis as AdditiveBasis
    from vcuda.models.categorical import BDeu as BDeu
    from vcuda.models.functional import MLP as MLP
    from vcuda.models.functional import Linear as Linear
    from vcuda.models.gaussian_process import GaussianProcess as GaussianProcess
    from vcuda.models.linear import BGe as BGe
    from vcuda.models.linear import EqualNoise as EqualNoise
    from vcuda.outputs import plots as plots
    from vcuda.posterior import GraphSamples as GraphSamples
    from vcuda.posterior import Posterior as Posterior
    from vcuda.posterior import Status as Status
    from vcuda.posterior.mixed_graphs import HiddenCausesPosterior as HiddenCausesPosterior

    __version__: str

# In the order of the data path. The imports above say the same to type checkers and editors; a test compares.
_HOMES = {
    "vcuda.data.dataset": ("Dataset",),
    "vcuda.data.reading": ("as_dataset",),
    "vcuda.data.knowledge": ("Knowledge",),
    "vcuda.data.library": ("read_graph", "write_graph"),
    "vcuda.data.simulate": ("simulate", "Simulation"),
    "vcuda.data.paper_tables": ("paper_dataset",),
    "vcuda.dags.base": ("DagPrior", "UniformDags"),
    "vcuda.dags.priority": ("PriorityDags",),
    "vcuda.dags.permutation": ("TopKDags", "SinkhornDags"),
    "vcuda.models.functional": ("Linear", "MLP"),
    "vcuda.models.linear": ("BGe", "EqualNoise"),
    "vcuda.models.gaussian_process": ("GaussianProcess",),
    "vcuda.models.additive": ("AdditiveBasis",),
    "vcuda.models.categorical": ("BDeu",),
    "vcuda.infer.straight_through": ("StraightThrough",),
    "vcuda.infer.variational": ("Variational",),
    "vcuda.infer.exact": ("Exact",),
    "vcuda.infer.orders": ("Orders",),
    "vcuda.cluster": ("local_cluster",),
    "vcuda.fitting.fit": ("fit",),
    "vcuda.infer.progress": ("Progress",),
    "vcuda.posterior": ("Posterior", "Status", "GraphSamples"),
    "vcuda.posterior.mixed_graphs": ("HiddenCausesPosterior",),
    "vcuda.estimator": ("CausalPosterior",),
    "vcuda.metrics": ("evaluate",),
    "vcuda.errors": (
        "VcudaError",
        "DataError",
        "KnowledgeError",
        "ConfigError",
        "RunError",
        "ClusterError",
        "MissingExtraError",
        "ConvergenceWarning",
        "ModelCheckWarning",
    ),
}
# Modules of public names.
_MODULES = {"baselines": "vcuda.baselines", "plots": "vcuda.outputs.plots"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise let every misspelt name pass

    def __getattr__(name):
        from importlib import import_module

        if name == "__version__":
            from importlib.metadata import version

            value = version("vcuda")
        elif name in _MODULES:
            value = import_module(_MODULES[name])
        elif name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
