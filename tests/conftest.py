import os
import random
import shutil
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from browsing import opener

torch.set_num_threads(1)
# Some virtual machines announce Intel's matrix unit and forbid its use: products of 16-bit floats then end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # read at the first such product
os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: beside other tests its workers would starve
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell: children would ignore it as well
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items):
    """Shuffle files, and tests within a file, if asked to: `NFDRL_ORDER=1 make test`.

    Tests on Ray run one after the other and wait most of the time: first, so that the others run beside them.
    """
    if order := os.environ.get("NFDRL_ORDER"):
        rng, files = random.Random(order), {}
        items.sort(key=lambda item: (files.setdefault(item.path, rng.random()), rng.random()))
    items.sort(key=lambda item: all(mark.args != ("ray",) for mark in item.iter_markers("xdist_group")))


@pytest.fixture
def double():
    """Tensors made in the test are float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True, scope="session")
def torch_stays_as_it_is():
    """The command's own thread and denormal settings would leak into other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nfdrl.cli.prepare_torch", lambda: None)
        yield


@pytest.fixture(autouse=True)
def torch_is_as_it_was():
    """Trials of a sweep set both as well, in a process of their own unless a test calls them."""
    yield
    torch.set_flush_denormal(False)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, or whichever is installed; in CI it must be."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        how = "the page is tested in Chromium, which is not installed: apt-get install chromium"
        pytest.fail(how) if os.environ.get("CI") else pytest.skip(how)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=300_000)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser):
    """Open an address; whatever the page complains about fails the test."""
    opened, complaints = [], []
    yield opener(browser, opened, complaints)
    for context in opened:
        context.close()
    assert complaints == []
