r"""Safe display of text to a person: nothing is hidden or imitates something else.

Escaped, as the `\uXXXX` of JSON:

- characters that are invisible or control the text: controls, format and bidirectional characters,
  tags, variation selectors, unassigned and private-use characters, fillers and blank letters, every
  space but U+0020, line and paragraph separators;
- imitations of ASCII: full-width and mathematical letters, ligatures, small capitals, look-alikes
  of punctuation and of vertical lines; the full stop of Chinese and strokes between other letters;
- digits, punctuation and spacing marks of a script without a letter near them, next to
  ASCII letters or digits: two Lao zeros as the o's of a host, a sof pasuq as a colon;
- combining marks that strike through or enclose, that follow no letter, or from the fourth on;
- in text with no other accented letter, consonants with a mark below (`co\u1e43`) and marks that no
  letter is usually written with; a dotless i in a word and text without another Turkish letter;
- the right-to-left word in front of a number, which would be drawn on the other side of it;
- letters that mix scripts within a word, and words made of look-alikes alone
  (`\u0441\u043e\u0440\u0443` for "copy") unless the text around them has a letter that only their
  own script has.

Unchanged, so that text in one language stays readable: letters and accents of every script, joiners
between letters of scripts that need them, an emoji's own joiners and variation selectors,
full-width punctuation next to Chinese, Japanese or Korean.

More than `MAX_BLANKS` blanks in a row are replaced by their number, `[200 spaces]`, because a long
run moves the following text out of sight.

The cost is linear in the text; printable ASCII costs one pass of a regular expression.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

SUMMARY_CHARS = 200
MAX_BLANKS = 8  # in a row; deeper indentation is rare within one line
_MAX_MARKS = 3  # Vietnamese and Thai need two on a letter, vocalised Hebrew three
_VALUE_CHARS = 60  # shown of one argument in a summary
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Invisible although their category is letter, mark or symbol.  Source: the property
# Default_Ignorable_Code_Point of the Unicode Character Database, and blank glyphs of its charts.
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    r"\ufff0-\ufff8\ufffc\U00013441\U00013442\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_FORMAT = re.compile(r"[\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
# Marks over or around the preceding letter that change its appearance.
_OVERLAYS = re.compile(r"[\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e6\u20ea\u20eb]")
_IMITATES = frozenset(
    "\u2010\u2011\u2043\u2212\u02d7\u2796"  # hyphens
    "\u2044\u2215\u29f8\u2571\u27cb\u2216\u29f5\u29f9"  # slashes
    "\ufe30\u205a\u204f\ua789\u2236\u02d0\u02f8\u037e\ua78a\u2e40\u30a0"  # colons, semicolon, equals signs
    "\u2223\u01c0\u2758\u01c3\u02b9\u02ba\u02bb\u02bc\u02bd\u02c8\u02ca\u02cb\u02c2\u02c3\u02c4"
    "\u2016\u2225\u01c1\u23b8\u23b9\u23a2\u23a5\u23aa\u23d0\u2502\u2503\u2506\u2507\u250a\u250b\u254e\u254f"
    "\u2551\u2575\u2577\u2579\u257b\u257d\u257f\u258f\u2595\uffe8\uffe4\u2980\u2759\u275a"  # lines
    "\u2217\u204e\u223c\u2053\u201a\ua4f8\ua4f9\ua4fa\ua4fb\ua4fd\u0294\u0241\u2d51\u276e\u276f"
)
# Strokes and dots of Chinese and Japanese: look-alikes of ASCII except next to their own script.
_STROKES = frozenset(
    "\u3002\uff61\u2025\u4e28\u4e3f\u4e36\u30ce\u30fd\u3033\u3035\u30fc\uff70\u4e00"
)
_VERTICAL = frozenset("\u4e28\u4e3f")  # look-alikes also between blanks
_BELOW = frozenset("\u0323\u0324\u0325\u032d\u032e\u0330\u0331")
_DOTLESS = "\u0131"
_TURKISH = frozenset("\u011e\u011f\u0130\u015e\u015f\u0259\u018f")  # anywhere in the text
_TURKISH_NEAR = _TURKISH | frozenset(
    "\u00c7\u00e7\u00d6\u00f6\u00dc\u00fc\u00c2\u00e2"
)  # in the word
_VOWELS = frozenset("aeiouyAEIOUY")
# A right-to-left word, then anything without a direction, then a digit: the digit takes the
# word's direction.  Rules W2, W7 and N1 of Unicode TR 9; escapes have letters.
_RIGHT = (
    r"\u0590-\u065f\u066a-\u06ef\u06fa-\u08ff\ufb1d-\ufdff\ufe70-\ufefe"
    r"\U00010800-\U00010fff\U0001e800-\U0001efff"
)
_BEFORE_NUMBER = re.compile(
    rf"(?<![{_RIGHT}])[{_RIGHT}]++(?=(?:(?![{_RIGHT}])[\W_])*+[0-9\u0660-\u0669\u06f0-\u06f9])"
)
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(rf"(\s)\1{{{MAX_BLANKS},}}|\s{{{MAX_BLANKS + 1},}}|([^!-~\s])\2{{{MAX_BLANKS},}}")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_BLANK_NAMES = {" ": "space", "\t": "tab", "\n": "newline", "\r": "return"}
# The same in JSON text, where an escaped backslash does not start `\n`.
_JSON_RUN = re.compile(
    rf"\\\\|((?:\s|\\[nrtf]){{{MAX_BLANKS + 1},}})|([^!-~\s])\2{{{MAX_BLANKS},}}"
)
_JSON_PIECE = re.compile(rf"(?:\\.|[^\\]){{1,{_VALUE_CHARS}}}", re.DOTALL)  # splits no escape
# Syntax ends the context in which a word of look-alikes is judged; punctuation does not.
_SYNTAX = re.compile(r"(?:\\u[0-9a-f]{4}|[|&;<>$`\\/=(){}\[\]*\"#@%^~+\n\r])+")
# Scripts written without spaces next to Latin letters, and unlike them.
_UNLIKE = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
# Letters of phonetic alphabets with Latin names; they differ from ASCII by a detail or by size.
_PHONETIC = frozenset(map(chr, (*range(0x250, 0x2B0), *range(0x1D00, 0x1DC0), 0x1C0, 0x1C3))) | {
    *"\u0237\u0184\u0196\u01a7\u01a8\u01bc\u01bd\u01bf"
}
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
    "CANADIAN": frozenset("ᐁᐯᐳᐸᑌᑐᑕᑭᑯᑲᒍᒪᒿᕁᕼᕽᖇᖯᖴᗅᗞᗪᗰᗷ"),
    "TIFINAGH": frozenset("ⴰⵏⵑⵔⵝⵋ"),
    "RUNIC": frozenset("ᚷᚱᛁᛒᛕᛖᛗ"),
    "MIAO": frozenset(
        "\U00016f08\U00016f0a\U00016f16\U00016f28\U00016f35\U00016f3a\U00016f3b\U00016f3f\U00016f40\U00016f42\U00016f43"
    ),
}
# Punctuation, digits and spacing marks of these scripts belong to their own letters: away from them a
# sof pasuq is a colon, two Lao zeros are the o's of a host.  The first word of a character's name.
_OTHER_SCRIPTS = frozenset({
    "ADLAM", "AEGEAN", "AHOM", "ARABIC", "ARMENIAN", "AVESTAN", "BALINESE", "BAMUM", "BASSA",
    "BATAK", "BENGALI", "BHAIKSUKI", "BRAHMI", "BUGINESE", "CANADIAN", "CHAKMA", "CHAM", "CHEROKEE",
    "COPTIC", "CUNEIFORM", "CYPRIOT", "DEVANAGARI", "ETHIOPIC", "EXTENDED", "GEORGIAN", "GRANTHA",
    "GUJARATI", "GUNJALA", "GURMUKHI", "HANIFI", "HEBREW", "IMPERIAL", "JAVANESE", "KAITHI",
    "KANNADA", "KATAKANA", "KAYAH", "KHAROSHTHI", "KHMER", "KHOJKI", "KHUDAWADI", "LAO", "LEPCHA",
    "LIMBU", "LISU", "LYDIAN", "MAHAJANI", "MALAYALAM", "MANDAIC", "MANICHAEAN", "MASARAM",
    "MEDEFAIDRIN", "MEETEI", "MODI", "MONGOLIAN", "MRO", "MYANMAR", "NABATAEAN", "NEW", "NEWA",
    "NKO", "NYIAKENG", "OGHAM", "OL", "OLD", "ORIYA", "OSMANYA", "PAHAWH", "PALMYRENE", "PHAISTOS",
    "PHOENICIAN", "PSALTER", "REJANG", "RUNIC", "SAMARITAN", "SAURASHTRA", "SHARADA", "SIDDHAM",
    "SINHALA", "SOGDIAN", "SORA", "SUNDANESE", "SYLOTI", "SYRIAC", "TAI", "TAKRI", "TAMIL",
    "TELUGU", "THAANA", "THAI", "TIBETAN", "TIFINAGH", "TIRHUTA", "UGARITIC", "VAI", "VEDIC",
    "WANCHO", "WARANG", "YEZIDI", "ZANABAZAR",
})  # fmt: skip
_INDIC = frozenset({
    "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU", "KANNADA",
    "MALAYALAM", "SINHALA",
})  # fmt: skip
# Scripts that write with the signs of another one.
_SHARED = {
    "DEVANAGARI": _INDIC,
    "ARABIC": frozenset({"ARABIC", "SYRIAC", "THAANA", "NKO", "HANIFI", "YEZIDI", "ADLAM"}),
    "EXTENDED": frozenset({"ARABIC"}),
    "KATAKANA": frozenset({"KATAKANA", "HIRAGANA", "CJK", "HANGUL"}),
    "OLD": frozenset({"OLD"}),
}
_BELONGING = frozenset(
    {"Nd", "No", "Nl", "Po", "Pd", "Ps", "Pe", "Pi", "Pf", "Sc", "So", "Mc", "Lm"}
)


def without_invisible(text: str) -> str:
    """Return the text in its compatibility form (NFKC), without characters that show nothing.

    For comparisons: a soft hyphen or a zero-width space inside of a word is no difference to a reader.
    """
    return _INVISIBLE.sub("", _FORMAT.sub("", unicodedata.normalize("NFKC", text)))


def visible(text: str) -> str:
    """Return the text on one line: deceptive characters escaped, long runs of blanks as numbers."""
    if text.isascii() and text.isprintable() and " " * (MAX_BLANKS + 1) not in text:
        return text
    return exact(_RUN.sub(_count, text))


def exact(text: str) -> str:
    """Return the text with deceptive characters escaped and every blank kept."""
    if text.isascii() and text.isprintable():
        return text
    escaped = "".join(_escaped(text))
    return _BEFORE_NUMBER.sub(lambda found: "".join(map(_escape, found[0])), escaped)


def show_json(value: object) -> str:
    """Render a JSON value for a screen, complete and indented, with long runs of blanks as numbers."""
    return "\n".join(
        " " * (len(line) - len(line.lstrip(" "))) + exact(_count_in_json(line.lstrip(" ")))
        for line in _lines(value)
    )


def _lines(value: object) -> list[str]:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return text.split("\n")


def least_chars(value: object) -> int:
    """Return the minimal length of a rendered JSON value, in some microseconds per 1,000 characters."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def render_call(tool: str, arguments: Mapping[str, object]) -> str:
    """Describe a call in one line; truncated values say by how many characters."""
    shown: list[str] = []
    size = 0
    for name, value in arguments.items():
        if size > SUMMARY_CHARS:  # the others would not be visible
            shown.append(f"and {len(arguments) - len(shown)} more")
            break
        shown.append(f"{_head(name)}={_brief(value)}")
        size += len(shown[-1])
    return _cut(f"{_head(tool)}({', '.join(shown)})", SUMMARY_CHARS)


def describe_call(tool: str, arguments: object) -> str:
    """Describe a call in one line, for arguments of any type."""
    if isinstance(arguments, Mapping):
        return render_call(tool, arguments)
    return _cut(f"{_head(tool)}({_brief(arguments)})", SUMMARY_CHARS)


def _head(name: str) -> str:
    """Return the start of a name, longer than a line shows."""
    left = len(name) - SUMMARY_CHARS
    return visible(name) if left <= 0 else f"{visible(name[:SUMMARY_CHARS])}… (+{left} characters)"


def _brief(value: object) -> str:
    """Return the start of a value as JSON; read only the shown part and adjacent runs of blanks."""
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
    unseen = max(0, len(head) - 2 * _VALUE_CHARS)  # a run shown unchanged
    head = exact(head[: 2 * _VALUE_CHARS])
    left = max(0, len(head) - _VALUE_CHARS) + unseen + len(text) - at
    return f"{head[:_VALUE_CHARS]}… (+{left} characters)" if left else head


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit} characters)"


def _count(run: re.Match[str]) -> str:
    """Return the count of equal characters, or of blanks of several kinds."""
    size, char = len(run[0]), run[0][0]
    if run[2] is not None:
        return f"[{size} times {_escape(char)}]" if _is_hidden(char) else run[0]
    return f"[{pluralize(size, _BLANK_NAMES.get(char, 'blank') if run[1] else 'blank')}]"


def _count_in_json(text: str) -> str:
    """Count blanks in the text of a JSON value, where some of them are written as escapes."""
    return _JSON_RUN.sub(_count_escapes, text)


def _count_escapes(run: re.Match[str]) -> str:
    if run[1] is None:
        return run[0] if run[2] is None else _count(run)
    blanks = re.sub(r"\\([nrtf])", lambda escape: _ESCAPED[escape[1]], run[1])
    kind = _BLANK_NAMES.get(blanks[0], "blank") if len(set(blanks)) == 1 else "blank"
    return f"[{pluralize(len(blanks), kind)}]"


def _escaped(text: str) -> Iterator[str]:
    """Yield the escaped text in pieces."""
    at = 0
    for syntax in _SYNTAX.finditer(text):
        if syntax.start() > at:
            yield _escaped_segment(text[at : syntax.start()])
        yield from (_escape(char) if _is_hidden(char) else char for char in syntax[0])
        at = syntax.end()
    yield _escaped_segment(text[at:])


def _escaped_segment(text: str) -> str:
    """Escape a part without syntax; each script counts as used only if a letter proves it."""
    if text.isascii() and text.isprintable():
        return text
    return (_escaped_short if len(text) <= _SHORT_CHARS else _escaped_long)(text)


def _escaped_long(text: str) -> str:
    chars = set(text)  # far smaller than the text, and created in C
    letters = {_script(char) for char in chars if char.isalpha()}
    scripts = letters - _UNLIKE
    used = {script for char in chars if (script := _used_script(char))}
    words = text
    if (
        len(scripts) > 1
        or not scripts <= (used | {"LATIN"})
        or not _PHONETIC.isdisjoint(chars)
        or (_DOTLESS in chars and _TURKISH.isdisjoint(chars))
    ):
        words = _WORD.sub(lambda word: "".join(_marked_letters(word[0], used)), words)
    latin = [char for char in chars if char < "\u1f00"]
    has_plain_latin = not any(map(_is_accented, latin))
    table = {
        ord(char): _escape(char) for char in chars if _is_hidden(char) and not _is_contextual(char)
    }
    if any(char.isascii() and char.isalnum() for char in chars):
        table |= {ord(char): _escape(char) for char in chars if _is_stray(char, letters)}
    if has_plain_latin:
        table |= {ord(char): _escape(char) for char in latin if _has_mark_below(char)}
    marks = {char for char in chars if ord(char) not in table and _is_mark(char)}
    odd = marks | {char for char in chars if ord(char) not in table and _is_contextual(char)}
    if odd:
        words = _shown_in_context(words, odd, has_plain_latin=has_plain_latin)
    return words.translate(table) if table else words


_SHORT_CHARS = 64  # shorter texts are faster to scan than to prepare, and often repeat
_escaped_short = lru_cache(maxsize=4096)(_escaped_long)


def _shown_in_context(text: str, odd: set[str], *, has_plain_latin: bool) -> str:
    """Escape those of the characters in `odd` that their neighbours do not need."""
    shown: list[str] = []
    at, marks, before = 0, 0, ""
    for found in re.finditer(f"[{re.escape(''.join(odd))}]", text):
        index, char = found.start(), found[0]
        if index > at:
            shown.append(text[at:index])
            marks, before = 0, _last_drawn(text, at, index) or before
        at = index + 1
        marks = marks + 1 if _is_mark(char) else 0
        is_hidden = _is_hidden(char) or (
            marks > 0
            and (
                marks > _MAX_MARKS
                or not _bears_marks(before)
                or bool(_OVERLAYS.match(char))
                or (has_plain_latin and _is_unusual(before, char))
            )
        )
        if is_hidden and not _is_needed(before, char, text[at : at + 1]):
            shown.append(_escape(char))
        else:
            shown.append(char)
        if char not in _TRANSPARENT:
            before = char
    shown.append(text[at:])
    return "".join(shown)


def _last_drawn(text: str, start: int, end: int) -> str:
    """Return the last character of a piece that is not a selector; "" if there is none."""
    while end > start and text[end - 1] in _TRANSPARENT:
        end -= 1
    return text[end - 1] if end > start else ""


def _is_contextual(char: str) -> bool:
    """True if the neighbours decide whether the character is hidden: see `_is_needed`."""
    return char in "\ufe0e\ufe0f\u20e3\u200c\u200d" or _is_east_asian_punctuation(char)


def _is_east_asian_punctuation(char: str) -> bool:
    """True for strokes, and for full-width forms of punctuation."""
    return char in _STROKES or ("\uff01" <= char <= "\uff5e" and not char.isalnum())


def _is_stray(char: str, scripts: set[str]) -> bool:
    """True for a sign of a script that has no letter in the same part of the text."""
    home = _home(char)
    return bool(home) and home.isdisjoint(scripts)


@lru_cache(maxsize=4096)
def _home(char: str) -> frozenset[str]:
    """Return the scripts that write with a sign; empty for a letter and for what all scripts share."""
    script = "" if char.isascii() else _script(char)
    if script not in _OTHER_SCRIPTS or unicodedata.category(char) not in _BELONGING:
        return frozenset()
    return _SHARED.get(script, frozenset({script}))


@lru_cache(maxsize=4096)
def _is_accented(char: str) -> bool:
    """True for a Latin letter that some language uses and English does not."""
    if char.isascii() or not char.isalpha() or _script(char) != "LATIN" or char in _PHONETIC:
        return False
    return not (_is_hidden(char) or char == _DOTLESS or _has_mark_below(char))


@lru_cache(maxsize=4096)
def _has_mark_below(char: str) -> bool:
    """True for an ASCII consonant with a mark below it."""
    parts = "" if char.isascii() else unicodedata.normalize("NFD", char)
    return len(parts) > 1 and _is_unusual(parts[0], parts[1])


@lru_cache(maxsize=4096)
def _is_unusual(letter: str, mark: str) -> bool:
    """True if hardly any language uses this mark on this ASCII letter."""
    if not letter.isascii() or not letter.isalpha():
        return False
    if mark in _BELOW:
        return letter not in _VOWELS
    return len(unicodedata.normalize("NFC", letter + mark)) > 1


_TRANSPARENT = frozenset("\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")


def _is_needed(before: str, char: str, after: str) -> bool:
    """True if a hidden character is a normal part of an emoji, a word, or a line of Chinese."""
    if _is_east_asian_punctuation(char):
        near = before + after
        is_apart = char.isalpha() and char not in _VERTICAL and not near.strip()
        return is_apart or any(map(_is_east_asian, near))
    if not before:
        return False
    if char in "\ufe0e\ufe0f":
        return _is_emoji(before) or (before in "0123456789#*" and after == "\u20e3")
    if char == "\u20e3":
        return before in "0123456789#*"
    if char in "\u200c\u200d":
        joined = bool(after) and _script(before) in _JOINED and _script(after) == _script(before)
        return joined or (char == "\u200d" and bool(after) and _is_emoji(before + after))
    return False


@lru_cache(maxsize=4096)
def _is_emoji(chars: str) -> bool:
    return all(unicodedata.category(char) == "So" or char in _EMOJI for char in chars)


# Emoji whose category is not symbol.
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
    """Return the script of a letter that resembles no ASCII letter; "" for all others."""
    if char.isascii():
        return ""
    script = _script(char)
    return script if script in _ALIKE and char not in _ALIKE[script] else ""


def _marked_letters(word: str, used: set[str]) -> Iterator[str]:
    """Yield the letters of a word, escaped where they take part in a deception."""
    if word.isascii():
        yield word
        return
    scripts = {_script(char) for char in word if char.isalpha()} - _UNLIKE
    is_mixed = len(scripts) > 1
    has_ascii = any(map(str.isascii, word))
    base = "LATIN" if "LATIN" in scripts else _script(word[0])
    is_alike = not is_mixed and all(char in _ALIKE.get(base, ()) for char in word)
    is_alike = is_alike or (len(word) > 1 and _PHONETIC.issuperset(word))
    is_turkish = not _TURKISH_NEAR.isdisjoint(word)
    for char in word:
        script = _script(char)
        is_foreign = (
            is_mixed
            and char.isalpha()
            and script not in _UNLIKE
            and (script != base or char in _ALIKE.get(base, ()))
        )
        is_phonetic = has_ascii and char in _PHONETIC
        is_dotless = char == _DOTLESS and not is_turkish
        is_escaped = is_foreign or is_phonetic or is_dotless or (is_alike and base not in used)
        yield _escape(char) if is_escaped else char


@lru_cache(maxsize=65_536)
def _script(char: str) -> str:
    """Return the first word of the character's name, which for letters is the script."""
    if char.isascii():
        return "LATIN"
    return unicodedata.name(char, "").split(" ", 1)[0].split("-", 1)[0]


@lru_cache(maxsize=65_536)  # more than a prompt has characters: a lookup costs 1-2 us
def _is_hidden(char: str) -> bool:
    if char.isascii():
        return not char.isprintable()
    if unicodedata.category(char) in _HIDDEN_CATEGORIES or _INVISIBLE.match(char):
        return True
    return char in _IMITATES or char in _STROKES or _is_disguise(char)


def _is_disguise(char: str) -> bool:
    """True for a variant form of ASCII; circled, squared and raised ones are recognizable."""
    kind = unicodedata.decomposition(char).partition(" ")[0]
    if kind in {"<circle>", "<square>", "<super>", "<sub>", "<fraction>"}:
        return False
    if unicodedata.name(char, "").startswith("LATIN LETTER SMALL CAPITAL"):
        return True
    folded = unicodedata.normalize("NFKC", char)
    is_letter = unicodedata.category(char)[0] in "LN"
    return folded.isascii() and (len(folded) == 1 or (is_letter and folded.isalnum()))


def _escape(char: str) -> str:
    number = ord(char)
    if number < 0x10000:  # noqa: PLR2004 - one unit of UTF-16, else two
        return f"\\u{number:04x}"
    return f"\\u{0xD7C0 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def pluralize(number: int, noun: str) -> str:
    """Return `1 rule`, `2 rules`; for nouns with a plural in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
