"""The language of the documentation, docstrings and comments: width, and plain forbidden phrases (CONTRIBUTING.md)."""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
COLUMNS = 100
_CODE = re.compile(r"^```.*?^```|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
"""Blocks of code, and the targets of links."""
_C_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_UNBREAKABLE = re.compile(r"\s*(?:[-*>] |\d+\. )*(?:!?\[[^\]]*\]\([^)]*\)|\S+)[.,;:)]*$")


def prose_lines(text):
    """The lines of a page, with their numbers, without code blocks and tables."""
    fenced = indented = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        indented = (line.startswith("    ") and (indented or not before.strip())) or (indented and not line.strip())
        before = line
        if not fenced and not indented and not line.lstrip().startswith("|"):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_stays_within_the_columns(page):
    wide = [
        f"{page.name}:{number}: {len(line)} columns"
        for number, line in prose_lines(page.read_text())
        if len(line) > COLUMNS and not _UNBREAKABLE.fullmatch(line)
    ]
    assert not wide


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rows_of_tables_are_whole(page):
    """A row that continues on a next line ends its table there."""
    text = _CODE.sub("", page.read_text())
    assert not [line for line in text.splitlines() if line.startswith("|") and not line.rstrip().endswith("|")]


def test_only_prose_is_measured():
    page = "text\n```\ncode\n```\n| a | b |\n\n    code\n\n    code\n\ntext\n"
    assert [line for _, line in prose_lines(page) if line] == ["text", "```", "text"]


@pytest.mark.parametrize("line", ["- [a picture](" + "x" * 100 + ")", "https://" + "x" * 100])
def test_a_link_may_be_wide(line):
    assert _UNBREAKABLE.fullmatch(line)


def test_a_sentence_may_not_be_wide():
    assert not _UNBREAKABLE.fullmatch("a word " * 20)


ROOMS = (
    *("bookkeeper", "broker", "cli", "client", "console", "converters", "delayed", "importing", "pipeline"),
    *("protocol", "storage", "testing", "magnetar/process.py", "magnetar/__init__.py", "bench", "tests"),
)
FORBIDDEN = re.compile(
    r"\b(?:is|are|was|were|be|been|being) (?:told|asked|said)\b"
    r"|\b(?:nobody|no one|somebody|anybody|everybody|whoever)\b"
    r"|\b(?:say|says|said) so\b"
    r"|\bwho (?:takes|gets|holds|asks|waits|serves|writes|may)\b"
    r"|\bof ours\b",
    re.IGNORECASE,
)
RIDDLES = re.compile(
    r"\b[Ww]hat\b(?![^.?!]*\?)"
    r"|\b[Ww]ho\b|\b[Ss]omeone\b|\b[Aa]nyone\b|\b[Ee]veryone\b"
    r"|\bones\b"
    r"|\b(?:[Tt]he|[Tt]his|[Tt]hat|[Aa]nother) one\b(?! of)"
    r"|\bthe (?:first|last|next|other|old|new|same|real|right) one\b"
    r"|\b[Oo]ne (?:that|which|who)\b"
    r"|\b[Ss]omething\b|\b[Ss]trangers?\b"
    r"|\b(?:told|said)\b(?!\()|, say\b"
    r"|\b(?:hears?|heard|learns?|learned) of\b"
    r"|(?<![\w`'.-])(?:[Ww]e|[Oo]urs?)\b(?!['=-])"
)
"""Pronouns in place of nouns, speech of things, and the first person, beyond the plainest phrases: refused in pages,
docstrings and comments. WHAT in capitals is the name of an argument; a question may begin with what.
"""
# The rule itself, this test, and the name of a role.
ALLOWED = {"CONTRIBUTING.md", "tests/test_prose.py", "tests/conformance/scenarios/security_rights.py"}


def plain(text):
    return re.sub(r"[\s#]+", " ", text)


def docstrings_of(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def comments_of(source):
    """All comments as one text, so that a phrase may go over lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(each.string for each in tokens if each.type == tokenize.COMMENT)


def prose_of(source):
    """Docstrings and comments of a Python file."""
    yield from docstrings_of(source)
    yield comments_of(source)


def beginnings_of(source):
    """Docstrings and comments of a Python file; of a comment on several lines the first."""
    yield from docstrings_of(source)
    before = (0, 0)
    for each in tokenize.generate_tokens(io.StringIO(source).readline):
        if each.type == tokenize.COMMENT:
            row, column = each.start
            if before != (row - 1, column):
                yield each.string.lstrip("# ")
            before = row, column


def is_suspect(text):
    return any(rule.search(plain(text)) for rule in (FORBIDDEN, RIDDLES))


def c_comments_of(source):
    """All comments of a C file as one text, without the stars at the beginnings of their lines."""
    return " ".join(re.sub(r"\n\s*\*", " ", each) for each in _C_COMMENT.findall(source))


def forbidden_in(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".c", ".h"}:
        text = plain(c_comments_of(text))
        return [match[0] for rule in (FORBIDDEN, RIDDLES) for match in rule.finditer(text)]
    if path.suffix in {".pyi", ".sh"} or path.name in {"Makefile", "Dockerfile", "pyproject.toml"}:
        text = plain(" ".join(re.findall("#.*", text)))
        return [match[0] for rule in (FORBIDDEN, RIDDLES) for match in rule.finditer(text)]
    if path.suffix != ".py":
        text = plain(_CODE.sub("", text))
        return [match[0] for rule in (FORBIDDEN, RIDDLES) for match in rule.finditer(text)]
    if not is_suspect(text):
        return []
    texts = [plain(each) for each in docstrings_of(text)]
    if is_suspect(" ".join(re.findall("#.*", text))):  # more than the comments, and found in a fraction of the time
        texts.append(plain(comments_of(text)))
    return [match[0] for each in texts for rule in (FORBIDDEN, RIDDLES) for match in rule.finditer(each)]


def modules():
    """Every Python file of the rooms that is written by hand."""
    paths = (f for room in ROOMS for f in ([ROOT / room] if "." in room else sorted((ROOT / room).rglob("*.py"))))
    return [path for path in paths if not path.name.endswith("_pb2.py")]


def c_files():
    """Every C file of the rooms."""
    return [path for room in ROOMS if "." not in room for path in sorted((ROOT / room).rglob("*.[ch]"))]


def scripts():
    """Files whose comments begin with a hash: scripts, settings of tools, and stubs of the compiled helpers."""
    paths = [ROOT / "Makefile", ROOT / "pyproject.toml", *sorted((ROOT / "docker").glob("*.sh"))]
    paths += [ROOT / "docker" / "Dockerfile", *sorted((ROOT / "tests").rglob("*.sh"))]
    return paths + [path for room in ROOMS if "." not in room for path in sorted((ROOT / room).rglob("*.pyi"))]


def reasons():
    """The reasons of the recorded differences."""
    return [ROOT / "tests" / "conformance" / name for name in ("differences.toml", "words.toml", "default.conf")]


def test_no_forbidden_phrases():
    read = (*PAGES, *modules(), *c_files(), *scripts(), *reasons())
    names = ((str(path.relative_to(ROOT)), path) for path in read)
    found = {name: phrases for name, path in names if name not in ALLOWED and (phrases := forbidden_in(path))}
    assert not found, "name the subject and use an active verb (CONTRIBUTING.md)"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""The consumer is\n    told the end."""\n', ["is told", "told"]),
        ("x = 1  # a ledger is\n# nobody's\n", ["nobody"]),
        ('x = "nobody"\n', []),
        ('"""The broker sends the end to the consumer."""\n', []),
        ('"""Drop what no cursor needs."""\n', ["what"]),
        ('"""What is a ledger? One of the first ledgers."""\n', []),
        ('"""Figures of WHAT: a topic."""\n', []),
        ('"""A stranger; something, say, that a ledger hears of."""\n', ["stranger", "something", ", say", "hears of"]),
        ("x = 1  # we read our own file of ours\n", ["of ours", "we", "our", "ours"]),
        ("x = 1  # the next one, and older\n# ones\n", ["the next one", "ones"]),
    ],
)
def test_docstrings_and_comments_are_read(tmp_path, source, found):
    (tmp_path / "module.py").write_text(source)
    assert forbidden_in(tmp_path / "module.py") == found


def test_comments_of_c_files_are_read(tmp_path):
    source = 'int what; /* an entry is\n * told the end */\nchar *s = "nobody"; /* older ones */\n'
    (tmp_path / "module.c").write_text(source)
    assert forbidden_in(tmp_path / "module.c") == ["is told", "told", "ones"]


@pytest.mark.parametrize("name", ["helper.pyi", "build.sh", "Makefile", "Dockerfile", "pyproject.toml"])
def test_comments_with_a_hash_are_read(tmp_path, name):
    (tmp_path / name).write_text("what = nobody\n# an entry of\n# ours\n")
    assert forbidden_in(tmp_path / name) == ["of ours", "ours"]


def test_scripts_are_found():
    assert {"Makefile", "Dockerfile", "install.sh", "asan.sh", "_acks.pyi"} <= {path.name for path in scripts()}


def test_c_files_are_found():
    assert {"_speedups.c", "_frame_writer.c", "faults.c", "no_sync.c"} <= {path.name for path in c_files()}


PRONOUN = re.compile(r"(?:it|its|they|their|them|those|these|that)\b", re.IGNORECASE)
MAY_BEGIN = re.compile(rf'(?:"""|# )\s*{PRONOUN.pattern}', re.IGNORECASE)
"""Cheap: whether a file has such a line at all."""


def test_no_docstring_or_comment_begins_with_a_pronoun():
    """Nothing stands before a docstring or comment that the pronoun could mean."""
    found = {}
    for path in modules():
        source = path.read_text(encoding="utf-8")
        if not MAY_BEGIN.search(source):
            continue
        if pronouns := [text[:60] for text in beginnings_of(source) if PRONOUN.match(text.lstrip())]:
            found[str(path.relative_to(ROOT))] = pronouns
    assert not found, "name the subject"


def test_a_pronoun_at_the_beginning_is_found():
    source = 'def f():\n    """Its end."""\n    x = 1  # it ends\n    # A ledger:\n    # its end\n    return x\n'
    assert [text for text in beginnings_of(source) if PRONOUN.match(text)] == ["Its end.", "it ends"]


RIDDLE_NAME = re.compile(r"def (test_(?:\w+_)?(?:what|who|nobody)(?:_\w+)?)\(")


def test_names_of_tests_are_no_riddles():
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if (names := RIDDLE_NAME.findall(path.read_text(encoding="utf-8")))
    }
    assert not found, "a test is named after its subject and the expected behaviour"


def test_a_riddle_in_a_name_is_found():
    assert RIDDLE_NAME.findall("async " + "def " + "test_what_is_kept(x):\ndef test_whatever():\n") == [
        "test_what_is_kept"
    ]
