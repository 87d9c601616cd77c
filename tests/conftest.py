"""What many tests share: the zoo, loaded once, and a model small enough to train in seconds."""

import atexit
import gc
import os
import re
import signal
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# What else is installed or asked for is none of these tests' affair.
os.environ["RLZOO_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.environ.pop("RLZOO_PLUGINS", None)
# Ray: no cluster of whoever runs the tests; those that tests make stay on the loopback address.
os.environ |= {"RAY_ADDRESS": "127.0.0.1:9", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
               "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip
# Models this small gain nothing by threads, and parallel workers would fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What a shell starts in the background ignores Ctrl-C, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


FORKING = (
    "tests/processes/",
    "tests/lab/compare/sweep/",
    "tests/lab/bench/",
    "tests/unit/cli/test_cli.py",
)


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite-golden", action="store_true", help="write the texts that tests see to golden/"
    )


def pytest_configure(config):
    """`-q`: a line for each twentieth of the tests, where there are many, in place of dots."""
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)  # after all else: what is loaded need not be taken apart
    elif config.option.verbose == -1:
        from helpers.progress import Progress

        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What stands in processes/ is marked so; what starts processes takes longest, and begins.
    Studies are left out unless `-m` asks for them."""
    for item in items:
        if item.path.parent.name == "processes":
            item.add_marker("process")
        if item.get_closest_marker("landing"):
            item.add_marker("study")
    if not {"study", "landing"} & set(re.findall(r"\w+", config.option.markexpr)):
        studies = [item for item in items if item.get_closest_marker("study")]
        items[:] = [item for item in items if not item.get_closest_marker("study")]
        config.hook.pytest_deselected(items=studies)
    items.sort(key=lambda item: item.get_closest_marker("process") is None)


def pytest_collection_finish():
    """What is loaded by now stays: the collector need not look through it again and again, nor as
    often as it would."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Under `-n`: file by file, in this order, so that a file's fixtures are made once. The files
    whose tests fork processes go to one worker: the server that they fork from is started once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "forks" if file.startswith(FORKING) else file

    if config.option.dist != "load":
        return None
    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def models_are_examined_once():
    """Where torch is loaded anyway."""
    if "torch" not in sys.modules:
        yield
        return
    from helpers.examined import once
    from rlzoo.lm import build

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "enforce", once())
        yield


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk():
    """No test cuts the power, and a run of three steps waits for the disk some fifty times. What is
    no open file is still refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def the_zoo_is_read_once():
    """A verb loads it anew, 30 ms each time; where a test changes no plugin, what it finds is the
    same."""
    from rlzoo.plugin import registry

    load, found = registry._load, {}

    def once(plugins):
        own_alone = os.environ.get("RLZOO_DISABLE_PLUGIN_AUTOLOAD")
        others = plugins or os.environ.get("RLZOO_PLUGINS") or not own_alone
        if others:
            return load(plugins)
        where = tuple(sys.path)
        if where not in found:
            found[where] = load(plugins)
        return found[where]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_load", once)
        yield


@pytest.fixture(scope="session")
def zoo():
    from helpers.zoo import ZOO

    return ZOO


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A random character model of some 5,000 parameters, as a transformers folder."""
    from helpers.micro import make_model

    return make_model(tmp_path_factory.mktemp("micro"))


@pytest.fixture
def words(model_dir):
    from helpers.micro import words_of

    return words_of(model_dir)


@pytest.fixture
def golden(request, tmp_path):
    """The texts that this test asserts: `golden(text)`, or `with golden.refuses(Error)`."""
    from helpers.golden import Golden

    found = Golden(request, tmp_path)
    yield found
    found.compare()
