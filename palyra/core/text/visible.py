r"""Text as a person may be shown it: nothing hidden, nothing that looks like something else.

Escaped, as the `\uXXXX` of JSON:

- what cannot be seen or steers the text: controls, format and bidirectional characters, tags,
  variation selectors, unassigned and private-use characters, fillers and blank letters, every space
  but U+0020, line and paragraph separators;
- what imitates ASCII: full-width and mathematical letters, ligatures, look-alikes of punctuation;
- combining marks that strike through or enclose, that follow no letter, or from the fourth on;
- letters that mix scripts within a word, and words made of look-alikes alone (`\u0441\u043e\u0440\u0443`
  for "copy") unless the text around them has a letter that only their own script has.

Left alone, so that text in one language stays readable: letters and accents of every script,
joiners between letters of scripts that need them, an emoji's own joiners and variation selectors,
full-width punctuation next to Chinese, Japanese or Korean.

More than `MAX_BLANKS` blanks in a row are written as their number, `[200 spaces]`, because a long run
moves what follows out of sight.  `render_json` alone keeps them: it is exactly the value.

Linear in the text; printable ASCII costs one pass of a regular expression.

How many of something, in words.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

SUMMARY_CHARS = 200
MAX_BLANKS = 8  # in a row; deeper indentation is rare within one line
_MAX_MARKS = 3  # Vietnamese and Thai need two on a letter, vocalised Hebrew three
_VALUE_CHARS = 60  # of one argument in a summary
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Drawn as nothing though their category says letter, mark or symbol.  Source: the property
# Default_Ignorable_Code_Point of the Unicode Character Database, and blank glyphs of its charts.
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\ufff0-\ufff8\ufffc\U00013441\U00013442\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
# Marks over or around the letter they follow, which change what it looks like.
_OVERLAYS = re.compile(r"[\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e6\u20ea\u20eb]")
_IMITATES = frozenset(
    "\u2010\u2011\u2043\u2212\u02d7\u2796"  # hyphens
    "\u2044\u2215\u29f8\u2571\u27cb\u2216\u29f5\u29f9"  # slashes
    "\ua789\u2236\u02d0\u02f8\u037e\ua78a\u2e40\u30a0"  # colons, semicolon, equals signs
    "\u2223\u01c0\u2758\u01c3\u02b9\u02ba\u02bb\u02bc\u02bd\u02c8\u02ca\u02cb\u02c2\u02c3\u02c4"
    "\u2217\u204e\u223c\u2053\u201a\ua4f8\ua4f9\ua4fa\ua4fb\ua4fd\u0294\u0241\u2d51\u276e\u276f"
)
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(rf"(\s)\1{{{MAX_BLANKS},}}|\s{{{MAX_BLANKS + 1},}}|([^!-~\s])\2{{{MAX_BLANKS},}}")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_BLANK_NAMES = {" ": "space", "\t": "tab", "\n": "newline", "\r": "return"}
# The same in JSON text: an escaped backslash is no beginning of `\n`.
_JSON_RUN = re.compile(
    rf"\\\\|((?:\s|\\[nrtf]){{{MAX_BLANKS + 1},}})|([^!-~\s])\2{{{MAX_BLANKS},}}"
)
_JSON_PIECE = re.compile(rf"(?:\\.|[^\\]){{1,{_VALUE_CHARS}}}", re.DOTALL)  # cuts no escape
# What ends the surroundings by which a word of look-alikes is judged: syntax, not punctuation.
_SYNTAX = re.compile(r"(?:\\u[0-9a-f]{4}|[|&;<>$`\\/=(){}\[\]*\"#@%^~+\n\r])+")
# Written without spaces next to Latin letters, and unlike them.
_UNLIKE = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
# Letters of phonetic alphabets, which have Latin names and differ from ASCII by a detail or by size.
_PHONETIC = frozenset(map(chr, (*range(0x250, 0x2B0), *range(0x1D00, 0x1DC0), 0x1C0, 0x1C3)))
_JOINED = frozenset({
    "ARABIC", "SYRIAC", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU",
    "KANNADA", "MALAYALAM", "SINHALA", "MYANMAR", "KHMER", "MONGOLIAN",
})  # fmt: skip
# Letters that look like ASCII ones in usual fonts.  Source: confusables.txt of Unicode TS 39.
_ALIKE = {
    "CYRILLIC": frozenset("аьсԁеһіјӏоԛрѕтухԝѵүєкАВСЕНІЈКМОРԚЅТУХԜҮӀЬЗБԌԏ"),
    "GREEK": frozenset("αγικνορτυωϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ"),
    "ARMENIAN": frozenset("օոսցհգքզւյՕՍԼՏՈ"),
    "COPTIC": frozenset("ⲀⲂⲈⲎⲒⲔⲘⲚⲞⲢⲤⲦⲨⲬⲟⲣⲥⲩⲭⲁⲉⲓⲕ"),
    "CHEROKEE": frozenset("ᎠᎡᎢᎥᎩᎪᎫᎬᎳᎷᎻᎽᎾᏀᏂᏃᏆᏎᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏮᏳᏴꭰꭱꭲꭵꭹꮁꮃꮇꮋꮍꮓꮛꮟꮢꮤꮪꮮꮯꮲꮳꮶ"),
    "LISU": frozenset(map(chr, range(0xA4D0, 0xA4F8))),
    "DESERET": frozenset("𐐄𐐕𐐛𐐠𐐬𐐽𐑈𐑊"),
    "HEBREW": frozenset("וןסחטו"),
}


def visible(text: str) -> str:
    """The text on one line: escapes for what deceives, numbers for long runs of blanks."""
    if text.isascii() and text.isprintable() and " " * (MAX_BLANKS + 1) not in text:
        return text
    return exact(_RUN.sub(_count, text))


def exact(text: str) -> str:
    """The text with the escapes alone: every blank is still there."""
    return text if text.isascii() and text.isprintable() else "".join(_escaped(text))


def render_json(value: object) -> str:
    """A JSON value for reading, complete and indented; still JSON of exactly that value."""
    return "\n".join(map(exact, _lines(value)))


def show_json(value: object) -> str:
    """A JSON value for a screen: as `render_json`, with long runs of blanks as their number."""
    return "\n".join(
        " " * (len(line) - len(line.lstrip(" "))) + exact(_count_in_json(line.lstrip(" ")))
        for line in _lines(value)
    )


def _lines(value: object) -> list[str]:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return text.split("\n")


def least_chars(value: object) -> int:
    """How long a JSON value is at least when it is rendered; a few microseconds for each 1,000."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def render_call(tool: str, arguments: Mapping[str, object]) -> str:
    """One line that names a call; long values are cut, and say by how much."""
    shown = ", ".join(f"{visible(name)}={_brief(value)}" for name, value in arguments.items())
    return _cut(f"{visible(tool)}({shown})", SUMMARY_CHARS)


def describe_call(tool: str, arguments: object) -> str:
    """One line that names a call, whatever its arguments are."""
    if isinstance(arguments, Mapping):
        return render_call(tool, arguments)
    return _cut(f"{visible(tool)}({_brief(arguments)})", SUMMARY_CHARS)


def _brief(value: object) -> str:
    """The beginning of a value as JSON; looks no further than what is shown, and runs of blanks."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    head, at = "", 0
    while at < len(text) and len(head) <= _VALUE_CHARS:
        piece = _JSON_PIECE.match(text, at)
        end = len(text) if piece is None else piece.end()
        for run in _JSON_RUN.finditer(text, at, end + 2 * MAX_BLANKS + 2):
            if run.start() < end and not run[0].startswith("\\\\"):
                whole = _JSON_RUN.match(text, run.start()) or run
                head += text[at : run.start()] + _count_in_json(whole[0])
                at = whole.end()
                break
        else:
            head, at = head + text[at:end], end
    head = exact(head)
    left = max(0, len(head) - _VALUE_CHARS) + len(text) - at
    return f"{head[:_VALUE_CHARS]}… (+{left} characters)" if left else head


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit} characters)"


def _count(run: re.Match[str]) -> str:
    """The number of equal characters, or of blanks of several kinds."""
    size, char = len(run[0]), run[0][0]
    if run[2] is not None:
        return f"[{size} times {_escape(char)}]" if _is_hidden(char) else run[0]
    return f"[{pluralize(size, _BLANK_NAMES.get(char, 'blank') if run[1] else 'blank')}]"


def _count_in_json(text: str) -> str:
    """The same for blanks in the text of a JSON value, which writes some of them as escapes."""
    return _JSON_RUN.sub(_count_escapes, text)


def _count_escapes(run: re.Match[str]) -> str:
    if run[1] is None:
        return run[0] if run[2] is None else _count(run)
    blanks = re.sub(r"\\([nrtf])", lambda escape: _ESCAPED[escape[1]], run[1])
    kind = _BLANK_NAMES.get(blanks[0], "blank") if len(set(blanks)) == 1 else "blank"
    return f"[{pluralize(len(blanks), kind)}]"


def _escaped(text: str) -> Iterator[str]:
    """The text piece by piece."""
    at = 0
    for syntax in _SYNTAX.finditer(text):
        yield from _escaped_segment(text[at : syntax.start()])
        yield from map(_escape_hidden, syntax[0])
        at = syntax.end()
    yield from _escaped_segment(text[at:])


def _escaped_segment(text: str) -> Iterator[str]:
    """A part without syntax: of each script in it we ask whether it is really used."""
    if text.isascii() and text.isprintable():
        yield text
        return
    chars = set(text)  # many times smaller than the text, and made in C
    scripts = {_script(char) for char in chars if char.isalpha()} - _UNLIKE
    used = {script for char in chars if (script := _used_script(char))}
    words = text
    if len(scripts) > 1 or not scripts <= (used | {"LATIN"}) or not _PHONETIC.isdisjoint(chars):
        words = _WORD.sub(lambda word: "".join(_marked_letters(word[0], used)), text)
    if not any(_is_mark(char) or _is_hidden(char) for char in chars):
        yield words
        return
    before, marks = "", 0
    for index, char in enumerate(words):
        marks = marks + 1 if _is_mark(char) else 0
        if marks:
            is_odd = marks > _MAX_MARKS or not _bears_marks(before) or bool(_OVERLAYS.match(char))
            is_hidden = is_odd or _is_hidden(char)
        else:
            is_hidden = _is_hidden(char)
        after = words[index + 1 : index + 2]
        yield _escape(char) if is_hidden and not _is_needed(before, char, after) else char
        if char not in _TRANSPARENT:
            before = char


_TRANSPARENT = frozenset("\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")


def _is_needed(before: str, char: str, after: str) -> bool:
    """Whether a hidden character is an ordinary part of an emoji, a word, or a line of Chinese."""
    if not before:
        return False
    if char in "\ufe0e\ufe0f":
        return _is_emoji(before) or (before in "0123456789#*" and after == "\u20e3")
    if char == "\u20e3":
        return before in "0123456789#*"
    if char in "\u200c\u200d":
        joined = bool(after) and _script(before) in _JOINED and _script(after) == _script(before)
        return joined or (char == "\u200d" and bool(after) and _is_emoji(before + after))
    if "\uff01" <= char <= "\uff5e" and not char.isalnum():
        return any(_is_east_asian(near) for near in before + after)
    return False


@lru_cache(maxsize=4096)
def _is_emoji(chars: str) -> bool:
    return all(unicodedata.category(char) == "So" or char in _EMOJI for char in chars)


# Emoji that are no symbols by category.
_EMOJI = (
    frozenset("\u203c\u2049\u2194\u21a9\u21aa\u2934\u2935\u25b6\u25c0\u25fd\u25fe\u3030\u303d")
    | _TRANSPARENT
)


@lru_cache(maxsize=4096)
def _is_east_asian(char: str) -> bool:
    return unicodedata.east_asian_width(char) in {"W", "F"} and not _is_emoji(char)


@lru_cache(maxsize=65_536)
def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Me"} and not _INVISIBLE.match(char)


@lru_cache(maxsize=4096)
def _bears_marks(char: str) -> bool:
    return bool(char) and unicodedata.category(char)[0] in "LM"


def _used_script(char: str) -> str:
    """The script of a letter that no ASCII letter looks like; "" for all others."""
    if char.isascii():
        return ""
    script = _script(char)
    return script if script in _ALIKE and char not in _ALIKE[script] else ""


def _marked_letters(word: str, used: set[str]) -> Iterator[str]:
    """A word whose letters are escaped where they take part in a deception."""
    if word.isascii():
        yield word
        return
    scripts = {_script(char) for char in word if char.isalpha()} - _UNLIKE
    is_mixed = len(scripts) > 1
    has_ascii = any(map(str.isascii, word))
    base = "LATIN" if "LATIN" in scripts else _script(word[0])
    is_alike = not is_mixed and all(char in _ALIKE.get(base, ()) for char in word)
    for char in word:
        script = _script(char)
        is_foreign = (
            is_mixed
            and char.isalpha()
            and script not in _UNLIKE
            and (script != base or char in _ALIKE.get(base, ()))
        )
        is_phonetic = has_ascii and char in _PHONETIC
        is_escaped = is_foreign or is_phonetic or (is_alike and base not in used)
        yield _escape(char) if is_escaped else char


@lru_cache(maxsize=65_536)
def _script(char: str) -> str:
    """The first word of the character's name, which for letters is their script."""
    if char.isascii():
        return "LATIN"
    return unicodedata.name(char, "").split(" ", 1)[0].split("-", 1)[0]


def _escape_hidden(char: str) -> str:
    return _escape(char) if _is_hidden(char) else char


@lru_cache(maxsize=65_536)  # more than a prompt has characters: a look costs a microsecond or two
def _is_hidden(char: str) -> bool:
    if char.isascii():
        return not char.isprintable()
    if unicodedata.category(char) in _HIDDEN_CATEGORIES or _INVISIBLE.match(char):
        return True
    return char in _IMITATES or _is_disguise(char)


def _is_disguise(char: str) -> bool:
    """Whether it is ASCII in another dress; circles, squares and raised signs are seen as such."""
    kind = unicodedata.decomposition(char).partition(" ")[0]
    if kind in {"<circle>", "<square>", "<super>", "<sub>", "<fraction>"}:
        return False
    folded = unicodedata.normalize("NFKC", char)
    is_letter = unicodedata.category(char)[0] in "LN"
    return folded.isascii() and (len(folded) == 1 or (is_letter and folded.isalnum()))


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"


def pluralize(number: int, noun: str) -> str:
    """`1 rule`, `2 rules`; for nouns that take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
