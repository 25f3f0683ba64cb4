import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


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


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, or whichever is installed; in CI it must be."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        how = "the page is tested in Chromium, which is not installed: apt-get install chromium"
        pytest.fail(how) if os.environ.get("CI") else pytest.skip(how)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()
