"""Every command and every example in the README and the docs runs, in a small form."""

import doctest
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import nfdrl
from nfdrl import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SMALL = {"paper": ("--smoke",), "bench": ("--smoke",), "compare": ("--smoke",)}


def blocks(language):
    found = [(page.name, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text()) if kind == language]
    return [(name, text) for name, text in found if ">>>" not in text]  # those are doctests


def commands():
    """Each `nfdrl …` line once, by what it would run."""
    found = {}
    for _, text in blocks("bash"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["nfdrl"]:
                found[" ".join(words[1:3])] = words[1:]
    return list(found.values())


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def smaller(words):
    words = [*words, *SMALL.get(words[0], ())] if words[:2] != ["paper", "list"] else words
    return [re.sub(r"^\d{4,}$", "1200", word) for word in words]


API = runpy.run_path(str(ROOT / "docs" / "api.py"))


def test_the_page_of_the_public_interface_is_up_to_date():
    assert (ROOT / "docs" / "api.md").read_text() == API["page"](), "run: python docs/api.py"


def test_the_page_documents_exactly_the_public_names():
    documented = re.findall(r"^### (\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted([*documented, "__version__"]) == sorted(nfdrl.__all__)
    assert all(hasattr(nfdrl, name) for name in documented)


def test_every_documented_member_exists():
    text = (ROOT / "docs" / "api.md").read_text()
    for entry in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        thing = getattr(nfdrl, entry.partition("\n")[0])
        fields = getattr(thing, "__dataclass_fields__", ())
        for member in re.findall(r"^(?:\* |\| )`(\w+)", entry, re.MULTILINE):
            assert hasattr(thing, member) or member in fields, member


def test_importing_the_package_does_not_import_torch():
    code = "import sys, nfdrl; assert 'torch' not in sys.modules; nfdrl.Agent; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_pages_have_commands_and_examples():
    assert len(commands()) >= 5
    assert blocks("python")


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_docs_runs(words):
    if words[0] in ("evaluate", "export", "page", "report"):
        assert cli.main(["train", "--env", "CartPole-v1", "--steps", "1200", "--out", words[1]]) == 0
    if words[:2] == ["train", "--resume"]:
        assert cli.main(["train", "--env", "CartPole-v1", "--steps", "1200", "--out", words[2]]) == 0
        (Path(words[2]) / "metrics.json").unlink()  # killed before its evaluation
    assert cli.main(smaller(words)) == 0


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value if value.endswith(".md") else "")
def test_every_example_in_the_docs_runs(page, code):
    small = re.sub(r"\b(\d+)_000\b", lambda number: str(1_000 + int(number[1])), code)  # in the same order
    exec(compile(small, page, "exec"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_script_runs(path, capsys):
    runpy.run_path(str(path))
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=lambda page: page.name)
def test_the_doctests_of_a_page_hold(page):
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0
