"""Saved agents on the Hugging Face Hub, by the documented interface of `huggingface_hub`.

What is downloaded is read like any other saved agent: nothing in it is executed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nfdrl.errors import NfdrlError
from nfdrl.runs.layout import CONFIG, MANIFEST, SECOND, STATE, WEIGHTS

CARD = "README.md"
FILES = [MANIFEST, CONFIG, STATE, WEIGHTS, *SECOND.values()]  # all that is downloaded: no code, no replay


def upload(folder: Path, repo: str, *, private: bool | None, message: str, token: str | None) -> str:
    """Make the repository if there is none, upload the folder's files, and return the address of the commit."""
    hub = _hub()
    try:
        hub.create_repo(repo, private=private, token=token, exist_ok=True)
        done = hub.upload_folder(
            repo_id=repo, folder_path=folder, commit_message=message, token=token, allow_patterns=[*FILES, CARD]
        )
    except Exception as error:  # its own errors, those of its HTTP library and of the system have no common class
        raise NfdrlError(f"{repo!r} cannot be written on the Hub: {_in_one_line(error)}") from None
    return str(done.commit_url)


def download(repo: str, *, revision: str | None, token: str | None) -> Path:
    """The local folder of a repository's saved agent."""
    hub = _hub()
    try:
        return Path(hub.snapshot_download(repo, revision=revision, token=token, allow_patterns=FILES))
    except Exception as error:
        raise NfdrlError(f"{repo!r} cannot be read from the Hub: {_in_one_line(error)}") from None


def card(name: str, method: str, env: str | None, step: int) -> str:
    """The page that the Hub shows for an agent."""
    environment = "an environment of its own" if env is None else f"`{env}`"
    loading = f'nfdrl.Agent.from_hub("{name}")' if env else f'nfdrl.Agent.from_hub("{name}", env=...)'
    return f"""---
library_name: nfdrl
tags: [reinforcement-learning, distributional-reinforcement-learning]
---

# {name}

`{method}` in {environment}, trained for {step:,} steps with nfdrl.

```python
import nfdrl

agent = {loading}
```
"""


def _hub() -> Any:
    if find_spec("huggingface_hub") is None:
        raise NfdrlError('the Hub needs huggingface_hub, which is not installed: pip install "nfdrl[hub]"')
    return import_module("huggingface_hub")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
