"""Pool files: what they may say, and complaints that name the line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
import skops.io
from commands import run
from hypothesis import given
from sklearn.linear_model import LogisticRegression

import occamroute as oc
from occamroute.pool import Measured, PerToken
from occamroute.pool_files.lines import line_of
from occamroute.pool_files.reading import read_pool
from occamroute.pool_files.schema import pool_schema

EXAMPLES = Path(__file__).parent.parent / "examples"
MODULE = """
value = 3


def first(queries):
    return ["a"] * len(queries)


def lengths(queries):
    return [[len(query)] for query in queries]
"""
GOOD = 'kind = "callable"\nfunction = "rules:first"\n'
CHAT = 'kind = "openai"\nbase_url = "http://localhost:1/v1"\nmodel = "m"\ncost = 1\n'
COST = "cost = -1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that pool files may name."""
    (tmp_path / "rules.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def first(:\n")
    (tmp_path / "raising.py").write_text("raise RuntimeError('not\\ntoday')\n")
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04K\x01.")
    return tmp_path


def write(folder: Path, text: str, name: str = "occamroute.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def table(options: str, name: str = "classifiers.x") -> str:
    return f'classes = ["a", "b"]\n[{name}]\n{options}'


# What is written, the line that the complaint must name, and a part of it. Line 1 is the classes', 2 the table's.
BROKEN: dict[str, tuple[str, int, str]] = {
    "unknown entry": ('classes = ["a"]\n\nwrong = 1\n[classifiers.x]\n', 3, "unknown entry 'wrong'"),
    "unknown table": (table(GOOD + "cost = 1\n") + "[models.x]\n", 6, "unknown entry 'models'"),
    "unknown kind": (table('cost = 1\nkind = "magic"\n'), 4, "unknown kind of classifier 'magic': use one of callable"),
    "kind of another family": (table('cost = 1\nkind = "sentence_transformers"\n'), 4, "unknown kind of classifier"),
    "no kind": (table("cost = 1\n"), 2, "needs a kind: one of callable"),
    "kind is a number": (table("kind = 3\ncost = 1\n"), 2, "needs a kind"),
    "unknown option": (table(GOOD + "cost = 1\ncolour = 1\n"), 6, "unknown option 'colour' of kind 'callable'"),
    "option of another kind": (table(GOOD + "model = 'm'\ncost = 1\n"), 5, "unknown option 'model'"),
    "wrong type": (table(GOOD + 'cost = 1\neach = "yes"\n'), 6, "option 'each' must be true or false, got 'yes'"),
    "a truth for a number": (table(GOOD + "cost = 1\nbatch_size = true\n"), 6, "must be a whole number, got True"),
    "a fraction for a number": (table(GOOD + "cost = 1\nbatch_size = 2.5\n"), 6, "must be a whole number, got 2.5"),
    "a list of lists": (table('kind = "sklearn"\ntrusted = [["a"]]\ncost = 1\n'), 4, "must be a list of strings"),
    "a table of tables": (
        table('kind = "transformers"\nmodel = "m"\ncost = 1\n[classifiers.x.labels]\nb = {}\n'), 6, "table of strings",
    ),
    "value out of range": (table(GOOD + "cost = 1\nbatch_size = 0\n"), 6, "batch_size of 'x' must be at least 1"),
    "missing option": (table('kind = "callable"\ncost = 1\n'), 2, "'x' of kind 'callable' needs the option 'function'"),
    "classes twice": ('\nclasses = ["a", "a"]\n[classifiers.x]\n' + GOOD + "cost = 1\n", 2, "got 'a' twice"),
    "classes are a string": ('# those\nclasses = "a"\n', 2, "classes must be a list of names"),
    "classes are empty": ("# those\nclasses = []\n", 2, "classes must be a list of names"),
    "classes are truths": ("# those\nclasses = [true]\n", 2, "classes must be a list of names"),
    "no cost": (table(GOOD), 2, "'x' needs a cost"),
    "cost below 0": (table(GOOD + COST), 5, "cost of 'x': a cost must be a finite number ≥ 0, got -1"),
    "cost is NaN": (table(GOOD + "cost = nan\n"), 5, "a cost must be a finite number ≥ 0, got nan"),
    "cost is infinite": (table(GOOD + "cost = 1e999\n"), 5, "a cost must be a finite number ≥ 0, got inf"),
    "cost is a word": (table(GOOD + 'cost = "free"\n'), 5, 'must be a number, "measure", { per_hour'),
    "cost is a truth": (table(GOOD + "cost = true\n"), 5, "must be a number"),
    "cost is another table": (table(GOOD + "cost = { per_day = 1 }\n"), 5, "must be a number"),
    "price per hour below 0": (table(GOOD + "cost.per_hour = -1\n"), 5, "per_hour must be a finite number ≥ 0"),
    "price in a table of its own": (table(GOOD + "[classifiers.x.cost]\nper_hour = 'a'\n"), 5, "per_hour must be"),
    "tokens of a function": (
        table(GOOD + "cost = { per_million_input = 1, per_million_output = 1 }\n"), 5, "reports no tokens",
    ),
    "no such module": (table('kind = "callable"\nfunction = "nowhere:f"\ncost = 1\n'), 4, "No module named 'nowhere'"),
    "no such function": (table('kind = "callable"\nfunction = "rules:g"\ncost = 1\n'), 4, "rules has no 'g'"),
    "no function": (table('kind = "callable"\ncost = 1\nfunction = "rules:value"\n'), 5, "must be callable, got int"),
    "no module named": (table('kind = "callable"\nfunction = "rules"\ncost = 1\n'), 4, "as 'package.module:name'"),
    "module with a slip": (table('kind = "callable"\nfunction = "broken:f"\ncost = 1\n'), 4, "SyntaxError"),
    "module that raises": (table('kind = "callable"\nfunction = "raising:f"\ncost = 1\n'), 4, "Error: not today"),
    "module above": (table('kind = "callable"\nfunction = "..rules:f"\ncost = 1\n'), 4, "cannot be imported"),
    "a pickle": (table('kind = "sklearn"\ncost = 1\npath = "model.pkl"\n'), 5, "is a pickle, and a pickle can run any"),
    "no model file": (table('kind = "sklearn"\npath = "a.skops"\ncost = 1\n'), 4, "a.skops: there is no such file"),
    "a key": (table(CHAT + 'api_key = "sk-secret"\n'), 7, "a key does not belong into a file"),
    "a key by another name": (table(CHAT + 'OPENAI-API-KEY = "sk-secret"\n'), 7, "a key does not belong into a file"),
    "a key for all": ('classes = ["a"]\ntoken = "sk-secret"\n', 2, "a key does not belong into a file"),
    "a key for a variable": (table(CHAT + 'key_env = "sk-secret"\n'), 7, "must be the name of an environment variable"),
    "a key in a field": (table(CHAT + 'extra = { api_key = "sk-secret" }\n'), 7, "must hold no key"),
    "variable not set": (table(CHAT + 'key_env = "OCCAMROUTE_NOT_SET"\n'), 7, "'OCCAMROUTE_NOT_SET', which is not set"),
    "bad address": (table('kind = "openai"\nmodel = "m"\nbase_url = "ftp://a"\ncost = 1\n'), 5, "base_url"),
    "lists before it": ('classes = [\n  "a", # ]\n  "b",\n]\n\n[classifiers.x]\n' + GOOD + COST, 9, "cost of 'x'"),
    "text before it": (
        table('kind = "openai"\ninstructions = """\n[classifiers.x]\ncost = "3" \\"""\n"""\n' + COST), 8, "cost of 'x'",
    ),
    "raw text before it": (
        table("kind = 'openai'\ninstructions = '''\n[a\n#'''''\n" + COST), 7, "cost of 'x'",
    ),
    "dotted keys": (
        'classes = ["a"]\nclassifiers.x.kind = "callable"\nclassifiers.x.function = "rules:first"\n'
        "classifiers.x.cost = -1\n", 4, "cost of 'x'",
    ),
    "dotted keys in a table": (
        'classes = ["a"]\n[classifiers]\nx.kind = "callable"\nx . "cost" = -1\n', 4, "cost of 'x'",
    ),
    "inline tables": (
        'classes = ["a"]\n[classifiers]\n'
        'y = { kind = "callable", function = "rules:first", cost = 1 }\nx = { kind = "callable", cost = -1 }\n',
        4, "cost of 'x'",
    ),
    "a quoted name": (table(GOOD + "'cost' = -1 # ]\n", 'classifiers."x.y z"'), 5, "cost of 'x.y z'"),
    "a quoted bracket": (table(GOOD + COST, " classifiers . 'x]#' "), 5, "cost of 'x]#'"),
    "separators that are no lines": (f'classes = ["a\x85", "b\u2028"]\n[classifiers.x]\n{GOOD}{COST}', 5, "cost of"),
    "lines of Windows": ((table(GOOD) + "# here\n\n" + COST).replace("\n", "\r\n"), 7, "cost of 'x'"),
    "a byte-order mark": ("\ufeff" + table(GOOD + COST), 5, "cost of 'x'"),
    "extractors, too": (table(GOOD + "cost = 1\n") + "[extractors.e]\n" + GOOD + COST, 9, "cost of 'e'"),
    "a list of tables": ('classes = ["a"]\n[[classifiers]]\nkind = "callable"\n', 2, "classifiers must be tables"),
    "a number for a table": ('classes = ["a"]\n[classifiers]\nx = 3\n', 3, "classifiers.x must be a table, got 3"),
    "a name twice": (table(GOOD + "cost = 1\n") + "[extractors.x]\n" + GOOD + "cost = 1\n", 6, "name of a classifier"),
    "no name": (table(GOOD + "cost = 1\n", 'classifiers.""'), 2, "a classifier needs a name"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_complaints_name_the_line(name: str, folder: Path) -> None:
    """One sentence on one line: the file, the line, what is wrong; never a key."""
    text, line, sentence = BROKEN[name]
    path = write(folder, text)
    with pytest.raises(oc.InvalidInputError) as caught:
        read_pool(path)
    said = str(caught.value)
    assert said.startswith(f"{path}, line {line}: "), said
    assert sentence in said
    assert said.endswith(".")
    assert "\n" not in said
    assert "sk-secret" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "classes are missing"),
        (f"[classifiers.x]\n{GOOD}cost = 1\n", 'classes are missing: list them as classes = ["a", "b"].'),
        ('classes = ["a"]\n', "there is no classifier: add a table [classifiers.NAME]."),
        ('classes = ["a"\n[classifiers.x]\n', "is no TOML: Unclosed array (at line 2"),
        ('classes = ["a"]\n\nkind = callable\n', "is no TOML: Invalid value (at line 3"),
        (table(GOOD) * 2, "is no TOML: Cannot declare ('classifiers', 'x') twice (at line 6"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_complaints_about_the_whole(text: str, sentence: str, folder: Path) -> None:
    """What stands in no line names the file, and what is no TOML the parser's line."""
    with pytest.raises(oc.InvalidInputError) as caught:
        read_pool(write(folder, text))
    assert str(caught.value).startswith(str(folder / "occamroute.toml"))
    assert sentence in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no text get a sentence each."""
    (tmp_path / "latin.toml").write_bytes('classes = ["ä"]'.encode("latin-1"))
    for path, sentence in [("none.toml", "no such file"), ("", "is a directory"), ("latin.toml", "no text in UTF-8")]:
        with pytest.raises(oc.InvalidInputError, match=sentence):
            read_pool(tmp_path / path)


FILLERS = [
    "", "# [x]\n", "a = 1\n", 'b = """\n"x" [\n\\" # """\n', "c = '''\n}'''\n", 'd = [\n  1, # ]\n  "]",\n  [2],\n]\n',
    'e = { f = "}", g = [1, 2] }\n', "'h i' = \"#\"\n", 'j.k = "\\\\"\n', "l = 2020-01-01T00:00:00Z\n", "m = ''\n\n",
    'n = """"quoted""""\n',
]  # fmt: skip


@given(st.lists(st.sampled_from(FILLERS), unique=True), st.lists(st.sampled_from(FILLERS), unique=True), st.booleans())
def test_lines_are_found_behind_anything(before: list[str], between: list[str], windows: bool) -> None:
    """Whatever stands before a key, its line is counted rightly, and tables keep their own keys."""
    text = "".join(before) + "[one]\n" + "".join(between) + "wanted = 1\n[two]\nwanted = 2\n"
    lines = text.split("\n")
    text = text.replace("\n", "\r\n") if windows else text
    tomllib.loads(text)
    assert line_of(text, ("one", "wanted")) == lines.index("wanted = 1") + 1
    assert line_of(text, ("two", "wanted")) == lines.index("wanted = 2") + 1
    assert line_of(text, ("two", "other", "deep")) == lines.index("[two]") + 1
    assert line_of(text, ("three",)) is None


def test_long_files_are_read_at_once(folder: Path) -> None:
    """Twenty thousand classes, one a line, and the line of a fault behind them."""
    classes = "".join(f'  "c{number}",\n' for number in range(20_000))
    path = write(folder, f"classes = [\n{classes}]\n[classifiers.x]\n{GOOD}{COST}")
    with pytest.raises(oc.InvalidInputError, match=r"line 20006: cost of 'x'"):
        read_pool(path)


def test_costs_in_every_form(folder: Path) -> None:
    """Numbers stay what they are; "measure", prices per hour and per token become what they mean."""
    token = "{ per_million_input = 0.15, per_million_output = 0.6 }"  # noqa: S105  # a price
    path = write(
        folder,
        f'classes = ["a", 2]\n[classifiers.typed]\n{GOOD}cost = 0.1\n[classifiers.free]\n{GOOD}cost = 0\n'
        f'[classifiers.timed]\n{GOOD}cost = "measure"\n[classifiers.rented]\n{GOOD}cost = {{ per_hour = 0.8 }}\n'
        f"[classifiers.chat]\n{CHAT.replace('cost = 1', f'cost = {token}')}",
    )
    pool = read_pool(path)
    assert pool.classes == ("a", "2")
    assert [one.cost for one in pool.classifiers] == [0.1, 0, Measured(), Measured(0.8), PerToken(0.15, 0.6)]


def test_classes_of_the_data(folder: Path) -> None:
    """A file without classes takes the data's; one with classes must know them all, and keeps its own order."""
    bare = write(folder, f"[classifiers.x]\n{GOOD}cost = 1\n", "bare.toml")
    assert read_pool(bare, classes=["c", "a"]).classes == ("c", "a")
    full = write(folder, f'# c\nclasses = ["b", "a"]\n[classifiers.x]\n{GOOD}cost = 1\n', "full.toml")
    assert read_pool(full, classes=["a"]).classes == ("b", "a")
    with pytest.raises(
        oc.InvalidInputError, match=r"full.toml, line 2: label 'c' of the data is none of the 2 classes"
    ):
        read_pool(full, classes=["a", "c"])


def test_paths_are_the_files_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and modules are found beside the pool file, from wherever it is read, under whatever path."""
    models = folder / "models"
    models.mkdir()
    estimator = LogisticRegression().fit([[0.0], [1.0]], ["a", "b"])
    skops.io.dump(estimator, models / "m.skops")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "deep.py").write_text("class Rules:\n    always = staticmethod(lambda queries: queries)\n")
    options = 'kind = "callable"\nfunction = "package.deep:Rules.always"\ncost = 0\n'
    write(folder, table('kind = "sklearn"\npath = "models/m.skops"\ncost = 1\n') + f"[classifiers.y]\n{options}")
    monkeypatch.chdir(models)
    pool = read_pool("../occamroute.toml")
    assert pool["x"].predict_proba(np.array([[1.0]])).shape == (1, 2)
    assert pool["y"].predict_proba(["b", "a"]).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_modules_of_the_same_name_in_two_folders(tmp_path: Path) -> None:
    """Each pool gets its own folder's module, and what that imports, however often the two are read in turn."""
    pools: list[tuple[str, oc.Pool]] = []
    for name in ("a", "b", "a", "b"):
        place = tmp_path / name
        (place / "plain").mkdir(parents=True, exist_ok=True)
        (place / "same.py").write_text(
            "import same_helper\ndef f(queries):\n    return [same_helper.L] * len(queries)\n"
        )
        (place / "same_helper.py").write_text(f"L = {name!r}\n")
        (place / "plain" / "sub.py").write_text(f"def f(queries):\n    return [{name!r}] * len(queries)\n")
        other = '[classifiers.y]\nkind = "callable"\nfunction = "plain.sub:f"\ncost = 1\n'
        path = write(place, table('kind = "callable"\nfunction = "same:f"\ncost = 1\n') + other)
        pools.append((name, read_pool(path)))
        for label, pool in pools:
            assert [pool.classes[one.predict_proba(["q"])[0].argmax()] for one in pool.classifiers] == [label] * 2


def test_a_module_that_hides_a_loaded_one(folder: Path) -> None:
    """A file called like a module that is loaded already is not mistaken for that."""
    (folder / "json.py").write_text("def first(queries):\n    return ['a'] * len(queries)\n")
    path = write(folder, table('kind = "callable"\nfunction = "json:first"\ncost = 1\n'))
    with pytest.raises(oc.InvalidInputError, match=r"line 4: .*module 'json' in .* give it another name"):
        read_pool(path)
    assert json.loads("1") == 1


def test_kinds_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in files and in the schema; one that does not load or breaks gets a sentence with its line."""
    code = (
        "class Coin:\n    '''A coin.'''\n    def __init__(self, name, cost, *, classes, bias: float = 0.5):\n"
        "        if bias > 1: raise OverflowError('too\\nmuch')\n"
        "        self.name, self.cost, self.classes, self.bias = name, cost, classes, bias\n"
        "    def predict_proba(self, queries): return [[self.bias, 1 - self.bias]] * len(queries)\n"
    )
    (tmp_path / "coin_kinds.py").write_text(code)
    about = tmp_path / "coin_kinds-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: coin-kinds\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[occamroute.classifiers]\ncoin = coin_kinds:Coin\nlost = no_such_kinds:X\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = read_pool(write(tmp_path, table('kind = "coin"\ncost = 1\nbias = 1\n')))
    assert pool["x"].predict_proba(["q"]) == [[1.0, 0.0]]
    with pytest.raises(oc.InvalidInputError, match=r"line 3: kind 'lost' cannot be loaded: ModuleNotFoundError"):
        read_pool(write(tmp_path, table('kind = "lost"\ncost = 1\n')))
    with pytest.raises(oc.InvalidInputError, match=r"line 2: classifier 'x' cannot be made: OverflowError: too much\."):
        read_pool(write(tmp_path, table('kind = "coin"\ncost = 1\nbias = 2\n')))
    schema = pool_schema()
    jsonschema.validate(tomllib.loads(table('kind = "coin"\ncost = 1\nbias = 1\n')), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(table('kind = "coin"\ncost = 1\nbias = "x"\n')), schema)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    made = pool_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return made


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_schema_takes_the_examples(path: Path, schema: dict[str, Any]) -> None:
    """Every pool file that is shown is good by the schema."""
    jsonschema.validate(tomllib.loads(path.read_text(encoding="utf-8")), schema)


# What the schema cannot know: the world outside the file, and what a constructor thinks of values.
OUTSIDE = {
    "value out of range", "no such module", "no such function", "no function", "no module named", "module with a slip",
    "module that raises", "module above", "a pickle", "no model file", "a key in a field", "a key for a variable",
    "variable not set", "bad address", "a name twice", "cost is NaN", "cost is infinite", "tokens of a function",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(BROKEN) - OUTSIDE))
def test_schema_refuses_what_the_reader_refuses(name: str, schema: dict[str, Any]) -> None:
    """An editor shows the fault while one types."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(BROKEN[name][0].removeprefix("\ufeff")), schema)


def test_check_from_the_command_line(folder: Path) -> None:
    """By default occamroute.toml here; a table, JSON, or one sentence and the code for bad data."""
    write(
        folder,
        table(GOOD + "cost = 0.25\n") + '[extractors.e]\nkind = "callable"\nfunction = "rules:lengths"\ncost = 0\n',
    )
    shown = run("pool", "check", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "0.25" in shown.stdout
    assert "2 classes: a, b" in shown.stdout
    said = json.loads(run("pool", "check", "occamroute.toml", "--json", cwd=folder).stdout)
    assert said == {
        "classes": ["a", "b"],
        "members": [
            {"role": "classifier", "name": "x", "cost": "0.25"},
            {"role": "extractor", "name": "e", "cost": "0"},
        ],
    }
    write(folder, table(GOOD + COST), "bad.toml")
    refused = run("pool", "check", "bad.toml", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "occamroute: bad.toml, line 5: cost of 'x': a cost must be a finite number ≥ 0, got -1.\n"
    )


def test_schema_from_the_command_line(tmp_path: Path) -> None:
    """It is the schema that Python gives, as JSON."""
    shown = run("pool", "schema", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == json.loads(json.dumps(pool_schema()))
