"""Words that public text does not use: pages, public headers, messages and help, configurations, scripts; and sentences
of pages and help that are too long. And comments that have lost their function: two in a row before one, of which only a
heading may be the first."""

import os
import re
import sys

ROOT = os.environ.get("DTRAIN_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "..", ".."))

WORDS = re.compile(
    r"\b([Jj]udg\w*|beside|at hand|anew|(left|leaves?|leaving) out|[Ww]orth a look|[Tt]h(at|ose) of)\b"
    r"|(^|[.!?:|] )Of [a-z]"  # a sentence that begins so is none: "Of each image, the mean"
    r"|(^|[.!?|] )What [^.?!|]*([.!|]|$)"  # as a subject; a question may begin with it
)
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
LITERALS = re.compile(r'(?:"(?:\\.|[^"\\\n])*"\s*)+')
FRAGMENT = re.compile(r"(?:/\*|//) (?:Of|Where|Whose|Whom|What) (?!.*\?)")  # how a comment begins that is no sentence
SUPERLATIVE = re.compile(r"\b(?:(?!at_|all_at_)\w+_)?(?:most|least)(?:_\w+)?\b(?!\()", re.I)  # a name
ORPHAN = re.compile(r"^/\*(?! ---)(?:(?!\*/).)*\*/\n(?=/\*(?! ---))", re.M | re.S)
PARAGRAPH = re.compile(r"(?:[^\n]+\n?)+")
NO_PROSE = re.compile(r"```.*?```|<!--.*?-->", re.S)
ITEM = re.compile(r"\n(?=\s*(?:[-*|#>]|\d+\.)\s)|\|")  # of a list or a table
CODE_OR_TARGET = re.compile(r"`[^`]*`|\]\([^)]*\)")  # one word
SENTENCE = re.compile(r"[.!?:;][\"')*]*\s")
MAX_WORDS = 35  # of a sentence


def pieces(path, text):
    """The public text of a file: each piece and where it begins."""
    if path.startswith("src/") and not path.endswith(".md"):
        for match in LITERALS.finditer(text):
            yield match.start(), re.sub(r'"\s*"', "", match[0]).strip('" \n')
    else:
        for match in (COMMENT if path.startswith("include/") else PARAGRAPH).finditer(text):
            yield match.start(), match[match.re.groups]


def findings(path, text):
    for start, piece in pieces(path, text):
        line = " ".join(re.sub(r"\n\s*[*#]?", " ", piece).split())
        for match in WORDS.finditer(line):
            yield text.count("\n", 0, start) + 1, match[0], line[max(match.start() - 30, 0) : match.end() + 40]


def long_sentences(path, text):
    prose = NO_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in (PARAGRAPH if path.endswith(".md") else LITERALS).finditer(prose):
        piece = re.sub(r'"\s*"', "", match[0]) if match.re == LITERALS else match[0]
        for item in ITEM.split(piece):
            for sentence in SENTENCE.split(CODE_OR_TARGET.sub("CODE", item) + " "):
                words = [word for word in sentence.split() if re.search(r"\w", word)]
                if len(words) > MAX_WORDS:
                    yield text.count("\n", 0, match.start()) + 1, " ".join(words[:12])


def orphans(text):
    for match in ORPHAN.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0].splitlines()[0]


def fragments(text):
    for match in FRAGMENT.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0]


def superlatives(text):
    code = re.sub("//.*", "", COMMENT.sub(lambda match: "\n" * match[0].count("\n"), LITERALS.sub('""', text)))
    for match in SUPERLATIVE.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match[0]


def self_test():
    def words(path, text):
        return [word for _, word, _ in findings(path, text)]

    assert words("src/a.c", 'f("it is that "\n  "of b"); /* beside */') == ["that of"]
    assert words("include/a.h", "/* Of each\n * image */ int left; /* started\n * anew */") == ["Of e", "anew"]
    assert words("README.md", "What is it? It is what it is. What comes is new.") == [". What comes is new."]
    assert words("README.md", "besides, a judgement\n\nleft\nout; of that") == ["judgement", "left out"]
    assert list(orphans("int a; /* x */\n/* One\n * of it. */\n/* Two. */\nint f(void);\n")) == [(2, "/* One")]
    assert list(fragments("/* Of it. */\n/* One of it. */\n// What is it? Ask.\n")) == [(1, "/* Of ")]
    assert list(superlatives("int MOST, a; /* at most */\nf(at_most, x_least);")) == [(1, "MOST"), (2, "x_least")]
    long = "word " * MAX_WORDS
    assert not list(long_sentences("a.md", f"{long}. {long}\n- {long} `a b`: {long}\n```\n{long}{long}\n```\n".replace(" `", "; `")))
    assert list(long_sentences("a.md", f"a\n\n{long}\nmore.\n")) == [(3, "word" + 11 * " word")]
    assert len(list(long_sentences("a.h", f'"{long}"\n"more"'))) == 1
    assert not list(orphans("/* File. */\n\n/* --- Part --- */\n/* One. */\nint f(void);\n"))


def public():
    for top in ("include", "src", "configs", "scripts", "docker", "kernels", "tests"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith(".md") or (not path.startswith(("tests/", "kernels/")) and not name.endswith((".png", ".svg", ".pyc"))):
                    yield path


def sources():
    for top in ("include", "src", "kernels", "tests"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            yield from (os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith((".c", ".h", ".cu", ".cuh")))


def main():
    self_test()
    bad = 0
    for path in ["README.md", *sorted(public())]:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        for line, word, where in findings(path, text):
            print(f'{path}:{line}: "{word}" in "... {where} ..."; see {os.path.basename(__file__)}')
            bad += 1
        for line, begin in long_sentences(path, text) if path.endswith((".md", "_keys.h", "options.c")) else ():
            print(f'{path}:{line}: a sentence of more than {MAX_WORDS} words: "{begin} ..."')
            bad += 1
    for path in sorted(sources()):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        for line, comment in orphans(text) if path.endswith((".c", ".cu")) else ():
            print(f"{path}:{line}: {comment}: whose comment? Another one follows it")
            bad += 1
        for line, what in () if path.startswith("tests/") else [*fragments(text), *superlatives(text)]:
            print(f"{path}:{line}: {what}: write a sentence, and max or min")
            bad += 1
    sys.exit(1 if bad else 0)


main()
