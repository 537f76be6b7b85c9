"""The word lists of `words.toml`, for the rules that understand questions."""

import tomllib
from importlib.resources import files

_LISTS = tomllib.loads((files("agentbridge") / "words.toml").read_text())


def _words(name: str) -> frozenset[str]:
    return frozenset(_LISTS[name].split())


DUTCH = _words("dutch")
ENGLISH = _words("english")
FILLERS = _words("fillers") | DUTCH | ENGLISH
GREETINGS = _words("greetings")
THANKS = _words("thanks")
GENERAL = _words("general")
EVERYWHERE = _words("everywhere")
ASPECTS = GENERAL | _words("aspects")
PAST_WORDS = _words("past")
PRODUCT_WORDS = _words("products")
STRONGLY_REFERRING = _words("strongly_referring")
REFERRING = _words("referring")
OWN_VERBS = _words("own_verbs")
FOREIGN = {language: frozenset(words.split()) for language, words in _LISTS["foreign"].items()}
ORDINALS: dict[str, int] = _LISTS["ordinals"]
