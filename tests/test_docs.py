"""Every command and every example in the README and the docs runs, in a small form."""

import doctest
import re
import runpy
import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from urllib.request import urlopen

import pytest

import nfdrl
from nfdrl import cli
from nfdrl.training.events import Evaluation, Report

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SMALL = {"paper": ("--smoke",), "bench": ("--smoke",), "compare": ("--smoke",)}
TUTORIALS = {"first_law": "first_law.png", "risk_on_the_cliff": "cliff.png", "own_law": "own_law.png"}


def blocks(language):
    found = [(page.name, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text()) if kind == language]
    return [(name, text) for name, text in found if ">>>" not in text]  # those are doctests


def commands():
    """Each `nfdrl …` line once, wherever its files go and however long it trains."""
    found = {}
    for _, text in blocks("bash"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["nfdrl"]:
                found[re.sub(r"\bout/\S+|\b\d+\b", "", " ".join(words))] = words[1:]
    return list(found.values())


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # where the method of a tutorial is


def smaller(words):
    words = [*words, *SMALL.get(words[0], ())] if words[:2] != ["paper", "list"] else words
    return [re.sub(r"^\d{4,}$", "1200", word) for word in words]


API = runpy.run_path(str(ROOT / "docs" / "api.py"))
SETTINGS = runpy.run_path(str(ROOT / "docs" / "settings.py"))


def test_the_readme_fits_on_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_tables_of_settings_are_complete_and_up_to_date():
    text = (ROOT / "docs" / "settings.md").read_text()
    assert {name for _, name, _ in SETTINGS["BLOCK"].findall(text)} == {"training", *nfdrl.METHODS}
    assert SETTINGS["page"](text) == text, "run: python docs/settings.py"


@pytest.mark.parametrize(("section", "event"), [("metrics.csv", Report), ("evaluations.csv", Evaluation)])
def test_every_column_of_the_metrics_is_explained(section, event):
    page = (ROOT / "docs" / "logging.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == [field.name for field in fields(event)]


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - set(re.findall(r"\]\((\w[\w-]*\.md)", index)) == {
        "README.md"
    }


def test_every_extra_is_described():
    extras = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    rows = [line.split("|")[1] for line in (ROOT / "docs" / "install.md").read_text().splitlines() if line[:3] == "| `"]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            found = page.parent / name if name else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


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


def on_ray(words):
    """The command as a parameter; those that start a Ray run one at a time."""
    marks = [pytest.mark.xdist_group("ray")] if words[0] in ("sweep", "tune") else []
    return pytest.param(words, id=" ".join(words), marks=marks)


def watched(words):
    """The exit code of a server that is stopped by Ctrl-C once it answers."""
    Path(words[1]).mkdir()
    command = [sys.executable, "-m", "nfdrl", *words, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = re.search(r"http://127\.0\.0\.1:\S+", process.stdout.readline())[0]
        with urlopen(address) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        return process.wait()


@pytest.mark.parametrize("words", list(map(on_ray, commands())))
def test_every_command_in_the_docs_runs(words):
    if words[0] in ("evaluate", "export", "page", "report"):
        own = words[words.index("--method") :][:2] if "--method" in words else []
        assert cli.main(["train", *own, "--env", "CartPole-v1", "--steps", "1200", "--out", words[1]]) == 0
    if words[:2] == ["train", "--resume"]:
        assert cli.main(["train", "--env", "CartPole-v1", "--steps", "1200", "--out", words[2]]) == 0
        (Path(words[2]) / "metrics.json").unlink()  # killed before its evaluation
    if "--beside" in words:
        words_before = ["compare", *words[1:3], "--methods", "dqn", "--out", words[words.index("--beside") + 1]]
        assert cli.main(smaller(words_before)) == 0
    assert (watched(words) if words[0] == "watch" else cli.main(smaller(words))) == 0


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value if value.endswith(".md") else "")
def test_every_example_in_the_docs_runs(page, code):
    small = re.sub(r"\b(\d+)_000\b", lambda number: str(1_000 + int(number[1])), code)  # in the same order
    exec(compile(small, page, "exec"), {})


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_script_runs(path, capsys, monkeypatch):
    monkeypatch.setenv("NFDRL_STEPS", "1200")  # what tutorials train for
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    if path.stem in TUTORIALS:
        assert (Path("out/tutorials") / TUTORIALS[path.stem]).stat().st_size > 10_000


@pytest.mark.parametrize("page", [page for page in PAGES if ">>>" in page.read_text()], ids=lambda page: page.name)
def test_the_doctests_of_a_page_hold(page):
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0
