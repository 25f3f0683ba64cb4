import os

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
