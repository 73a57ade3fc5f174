"""Forms of one word that the stemmer of the text index does not join.

Porter's stemmer cuts regular endings: `walked`, `walking` and `walk` are one word to the index, while
`went` and `go`, or `children` and `child`, are two.  A question of the past ("when did she buy …?")
has the base form where its answer has the past one, so a word of a question means all its forms.
The same goes for everyday words of one meaning ("mom", "mother"): those that hardly ever differ,
since each added meaning also adds wrong hits.  Classes overlap only where a form belongs to two
words.
"""

from collections.abc import Iterator
from functools import lru_cache

# Irregular verbs and plurals of English; forms that the stemmer joins are left out.
_IRREGULAR = """
arise arose arisen | awake awoke awoken | beat beaten | become became
| begin began begun | bend bent | bind bound | bite bit bitten | bleed bled | blow blew blown
| break broke broken | breed bred | bring brought | build built | burn burnt | buy bought
| catch caught | choose chose chosen | cling clung | come came | creep crept | deal dealt | dig dug
| draw drew drawn | dream dreamt | drink drank drunk | drive drove driven | eat ate eaten
| fall fell fallen | feed fed | feel felt | fight fought | find found | flee fled | fly flew flown
| forbid forbade forbidden | forget forgot forgotten | forgive forgave forgiven | freeze froze frozen
| get got gotten | give gave given | go goes went gone | grow grew grown | hang hung | hear heard
| hide hid hidden | hold held | keep kept | kneel knelt | lay laid | lead led | lean leant
| leap leapt | learn learnt | leave left | lend lent | lie lain | light lit | lose lost | make made
| mean meant | meet met | mistake mistook mistaken | overcome overcame | pay paid | prove proven
| ride rode ridden | ring rang rung | rise rose risen | run ran | say said | see saw seen
| seek sought | sell sold | send sent | shake shook shaken | shine shone | shoot shot
| show shown | shrink shrank shrunk | sing sang sung | sink sank sunk | sit sat | sleep slept
| slide slid | speak spoke spoken | spend spent | spin spun | spring sprang sprung | stand stood
| steal stole stolen | stick stuck | sting stung | strike struck | swear swore sworn | sweep swept
| swim swam swum | swing swung | take took taken | teach taught | tear tore torn | tell told
| think thought | throw threw thrown | understand understood | wake woke woken | wear wore worn
| weave wove woven | weep wept | win won | withdraw withdrew withdrawn | write wrote written
| child children | foot feet | goose geese | half halves | knife knives | leaf leaves | life lives
| loaf loaves | man men | mouse mice | person people | shelf shelves | thief thieves | tooth teeth
| wife wives | wolf wolves | woman women | good better best | bad worse worst
"""
_EVERYDAY = """
mother mom mum mama | father dad papa | grandmother grandma granny | grandfather grandpa
| kid kids child children | photo photograph picture pic | television tv | bicycle bike
| film movie | car automobile | vacation holiday trip | big large | begin began begun start | buy bought purchase
| marry marriage wedding | die death | born birth | job work
"""


def _read_classes(*texts: str) -> dict[str, tuple[str, ...]]:
    classes: dict[str, dict[str, None]] = {}
    for text in texts:
        for group in text.split("|"):
            words = group.split()
            for word in words:
                classes.setdefault(word, {word: None}).update(dict.fromkeys(words))
    return {word: tuple(forms) for word, forms in classes.items()}


_CLASSES = _read_classes(_IRREGULAR, _EVERYDAY)


@lru_cache(4_096)
def forms_of(word: str) -> tuple[str, ...]:
    """Return the lower-case word and its other forms, itself first."""
    found = next((_CLASSES[base] for base in _bases(word) if base in _CLASSES), ())
    return tuple(dict.fromkeys((word, *found)))


def _bases(word: str) -> Iterator[str]:
    """Yield the word, and what it may be a regular form of."""
    yield word
    for ending in ("s", "ing", "ed"):
        if word.endswith(ending):
            base = word.removesuffix(ending)
            yield from (base, f"{base}e")


__all__ = ["forms_of"]
