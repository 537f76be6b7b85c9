"""The words of a text and of a question, and how much each says: stems, Dutch compounds, numbers with their units."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentbridge.database import prepared
from agentbridge.words import FILLERS, GENERAL

# The dictionary that finds the stem, by language.
DICTIONARIES = {"nl": "dutch_stem", "en": "english_stem"}

# A question longer than this is a text; its beginning says what it is about.
MOST_WORDS = 60
LONGEST_WORD = 60
# Of the compounds with a word, the shortest: those that add least to it.
MOST_PARTS = 30
# A word that is only part of a compound, or has the asked word as a part, says half as much.
PART = 0.5
# Another word for what was asked says nearly as much.
OTHER_WORD = 0.8
# What can be asked about anything ("norm", "maatregelen") says less than what it is asked about.
ASKED_OF_ANYTHING = 0.5
# A word that no text has may be another one, mistyped. Short words are one letter away from too many others.
SHORTEST_MISTYPED = 5
SHORTEST_WITH_A_SLIP = 6
SHORTEST_WITH_TWO = 9
# What is left of a word may be an ending that its stem does not have, mistyped or not; "loon" in "minimumloon" is none.
ENDINGS = (
    *("e", "en", "s", "t", "d", "de", "te", "den", "ten", "st", "er", "ers", "end", "ing", "ingen"),
    *("heid", "lijk", "baar", "je", "jes", "tje", "tjes"),
)
LONGEST_ENDING = 4
SHORTEST_WITH_AN_ENDING = 7
SHORTEST_WITH_BOTH = 10
# What sounds the same in Dutch and is written one way or the other, most often the wrong one; doubled letters go last.
SOUNDS = [("ij", "ei"), ("ou", "au"), ("ch", "g"), ("ph", "f"), ("ck", "k"), ("c", "k"), ("y", "i"), ("ie", "i")]
DOUBLED = re.compile(r"(.)\1")

# The stems of `row.words`, each once, by `row.dictionary`: what a search looks for.
TERMS = """
    SELECT array_to_tsvector(coalesce(array_agg(DISTINCT lexeme), ARRAY[]::text[]))
    FROM unnest(string_to_array(row.words, ' ')) AS word, LATERAL (SELECT CASE
        WHEN word ~ '[0-9]' THEN word ELSE (ts_lexize(row.dictionary::regdictionary, word))[1]
    END AS lexeme) AS stem
    WHERE lexeme <> ''
"""

JOINED = re.compile(r"([^\W\d]+)[\d.]+|[\d.]+([^\W\d]+)")
TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Term:
    """One word of a question: what finds it, and how much that says."""

    word: str
    # Whether the question has it, or only says the same in other words.
    asked: bool
    exact: str
    parts: str
    exact_weight: float
    parts_weight: float
    exact_rows: int
    parts_rows: int


@dataclass(frozen=True)
class Question:
    terms: Sequence[Term]
    # What a text with every word would score.
    weight: float
    # What was probably mistyped, and the stem that was probably meant.
    corrections: Mapping[str, str]

    def corrected(self, text: str) -> str:
        return TOKEN.sub(lambda token: self.corrections.get(token[0], token[0]), _folded(text))


def words(text: str) -> list[str]:
    """Lower case, without accents, letters apart from digits; a number also together with its neighbours.

    So "NEN-EN 361", "EN361" and "en 361" share "en361", and "85 dB(A)" has "85db".
    """
    tokens = [token[:LONGEST_WORD].replace(",", ".") for token in TOKEN.findall(_folded(text))]
    found = []
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if token[0].isdigit():
            found.append(token)
            if before.isalpha() and len(before) <= 6:
                found.append(before + token)
            if after.isalpha() and len(after) <= 5:
                found.append(token + after)
        elif len(token) > 1:
            found.append(token)
    return found


def _folded(text: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(each))


def understand(text: str, *, also: Sequence[str] = ()) -> Question:
    """What to look for; asks the database for stems, for compounds and for how rare each word is.

    What the question says in other words is found `also`. It can add to a score, and is not missed where it is not.
    """
    every = list(dict.fromkeys(words(text)))[:MOST_WORDS]
    # "Hoe laat is het?" does not ask for the word "laat", but who types nothing else does.
    asked = [word for word in every if (word not in FILLERS and not _is_chance(word)) or len(every) == 1]
    others = [word for word in dict.fromkeys(words(" ".join(also))) if word not in asked]
    parameters = {"words": asked + others, "most_parts": MOST_PARTS, "shortest_mistyped": SHORTEST_MISTYPED}
    terms = []
    weight = 0.0
    corrections = {}
    for found in prepared(UNDERSTAND, parameters) if asked or others else ():
        if not found["lexemes"]:
            continue
        word, parts, total = found["word"], found["parts"], found["total"]
        lexemes, rows = found["lexemes"], found["exact_rows"]
        if word in asked and (meant := meant_by(word, alike=found["alike"])):
            corrections[word] = meant
            lexemes, rows = [meant], found["alike_rows"][found["alike"].index(meant)]
        worth = OTHER_WORD if word not in asked else ASKED_OF_ANYTHING if word in GENERAL else 1
        term = Term(
            word=word,
            asked=word in asked,
            exact=_any_of(lexemes),
            parts=_any_of(parts),
            exact_weight=worth * _rarity(rows, of=total),
            parts_weight=worth * PART * _rarity(found["parts_rows"], of=total) if parts else 0,
            exact_rows=rows,
            parts_rows=found["parts_rows"],
        )
        weight += max(term.exact_weight, term.parts_weight) if term.asked else 0
        terms.append(term)
    return Question(terms=terms, weight=weight, corrections=corrections)


def _is_chance(word: str) -> bool:
    """Whether a number only happens to stand beside a filler: "20 voor", and not "EN 20"."""
    joined = JOINED.fullmatch(word)
    return joined is not None and (joined[1] or joined[2]) in FILLERS - {"en"}


def meant_by(word: str, *, alike: Sequence[str]) -> str:
    """The one stem that this word is a slip of the finger away from; none where there are two, or where it is far."""
    most = 2 if len(word) >= SHORTEST_WITH_TWO else 1 if len(word) >= SHORTEST_WITH_A_SLIP else 0

    def slips(lexeme: str) -> int:
        if lexeme[0] != word[0]:
            # Hardly anybody mistypes that one, and "lopen" is not "open".
            return most + 1
        found = slips_between(_by_sound(word), _by_sound(lexeme))
        if len(lexeme) >= SHORTEST_WITH_AN_ENDING:
            ends = range(len(lexeme) - 1, len(lexeme) + 2)
            begun = [
                word[:end] for end in ends if len(word) - LONGEST_ENDING <= end < len(word) and is_ending(word[end:])
            ]
            in_stem = min((slips_between(_by_sound(each), _by_sound(lexeme)) for each in begun), default=most + 1)
            if in_stem <= (len(lexeme) >= SHORTEST_WITH_BOTH):
                found = min(found, in_stem)
        return found

    near = sorted((slips(lexeme), place) for place, lexeme in enumerate(alike))
    if not near or near[0][0] > most or (len(near) > 1 and near[0][0] == near[1][0]):
        return ""
    return alike[near[0][1]]


def is_ending(letters: str) -> bool:
    return len(letters) == 1 or any(slips_between(letters, ending) <= 1 for ending in ENDINGS)


def _by_sound(word: str) -> str:
    for written, heard in SOUNDS:
        word = word.replace(written, heard)
    return DOUBLED.sub(r"\1", word)


def slips_between(one: str, other: str) -> int:
    """How many letters are too many, too few or swapped with their neighbour; a wrong one is both of the former."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + 2 * (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _rarity(rows: int, *, of: int) -> float:
    """1 for a word that no row has, towards 0 for one that every row has."""
    return math.log(1 + (max(of - rows, 0) + 0.5) / (rows + 0.5)) / math.log(2 * of + 2)


def _any_of(lexemes: Sequence[str]) -> str:
    return " | ".join(f"'{lexeme}'" for lexeme in lexemes)


# A word is a stop word if it is one in either language, because nobody says which language a question is in.
# Parts are, in this order: "rolsteiger" and "getoetst" for "steiger" and "toetsing"; "schoen" for
# "veiligheidsschoen"; "valbeveil" for "val" and "vall", where what is left must be a word too, or they would find
# "valuta".
UNDERSTAND = """
    WITH asked AS MATERIALIZED (
        SELECT position, word, CASE
            WHEN word ~ '[0-9]' THEN ARRAY[word]
            WHEN nl <> '{}' AND en <> '{}' THEN (
                -- Dutch writes harnas and harnassen, laars and laarzen, brief and brieven.
                SELECT array_agg(DISTINCT variant) FROM unnest(nl || en) AS stem, LATERAL (VALUES
                    (stem), (regexp_replace(stem, '(.)\\1$', '\\1')),
                    (regexp_replace(stem, 'z$', 's')), (regexp_replace(stem, 'v$', 'f'))
                ) AS spelling (variant)
            )
            ELSE '{}'
        END AS lexemes
        FROM unnest(%(words)s::text[]) WITH ORDINALITY AS each (word, position),
            LATERAL (SELECT ts_lexize('dutch_stem', word) AS nl, ts_lexize('english_stem', word) AS en) AS stem
    ), stems AS MATERIALIZED (
        SELECT DISTINCT position, lexeme, regexp_replace(CASE
            WHEN length(lexeme) > 6 THEN regexp_replace(lexeme, 'ing$', '') ELSE lexeme
        END, '(.)\\1$', '\\1') AS root
        FROM asked, unnest(lexemes) AS lexeme
        WHERE lexeme !~ '[0-9]'
    ), parts AS (
        SELECT position, words.lexeme, rows
        FROM stems JOIN words ON words.lexeme LIKE '%%' || root || '%%'
        WHERE length(root) > 3
        UNION
        SELECT position, words.lexeme, rows
        FROM stems CROSS JOIN generate_series(4, length(stems.lexeme) - 3) AS letters
            JOIN words ON words.lexeme IN (left(stems.lexeme, letters), right(stems.lexeme, letters))
        UNION
        SELECT position, words.lexeme, rows
        FROM stems JOIN words ON words.lexeme LIKE root || '___%%' OR words.lexeme LIKE '%%___' || root,
            LATERAL (SELECT CASE
                WHEN words.lexeme LIKE root || '%%' THEN regexp_replace(substr(words.lexeme, 4), '^(s|en?)?', '')
                ELSE regexp_replace(left(words.lexeme, -3), '(s|en?)?$', '')
            END AS rest) AS other
        WHERE length(root) = 3 AND EXISTS (SELECT FROM words AS known WHERE known.lexeme = rest AND length(rest) > 2)
    )
    SELECT word, asked.lexemes,
        (SELECT coalesce(sum(rows), 0)::int FROM words WHERE lexeme = ANY(asked.lexemes)) AS exact_rows,
        part.lexemes AS parts, part.rows AS parts_rows, other.alike, other.alike_rows,
        (SELECT coalesce(max(rows), 0) FROM words WHERE lexeme = '') AS total
    FROM asked, LATERAL (
        SELECT coalesce(array_agg(lexeme), '{}') AS lexemes, coalesce(sum(rows), 0)::int AS rows FROM (
            SELECT lexeme, rows FROM parts
            WHERE parts.position = asked.position AND lexeme <> ALL(asked.lexemes)
            ORDER BY length(lexeme), lexeme LIMIT %(most_parts)s::int
        ) AS nearest
    ) AS part, LATERAL (
        -- In the order of likeness; only where the word is in no text.
        SELECT coalesce(array_agg(lexeme), '{}') AS alike, coalesce(array_agg(rows), '{}') AS alike_rows FROM (
            SELECT lexeme, rows FROM words
            WHERE length(word) >= %(shortest_mistyped)s::int AND word !~ '[0-9]' AND lexeme %% word
                AND NOT EXISTS (SELECT FROM words AS known WHERE known.lexeme = ANY(asked.lexemes))
            ORDER BY similarity(lexeme, word) DESC, lexeme LIMIT 5
        ) AS nearest
    ) AS other
    ORDER BY position
"""
