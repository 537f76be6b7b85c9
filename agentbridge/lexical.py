"""The words of a text and of a question, and how much each says: stems, Dutch compounds, numbers with their units."""

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from agentbridge.database import prepared
from agentbridge.words import FILLERS

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

# The stems of `row.words`, each once, by `row.dictionary`: what a search looks for.
TERMS = """
    SELECT array_to_tsvector(coalesce(array_agg(DISTINCT lexeme), ARRAY[]::text[]))
    FROM unnest(string_to_array(row.words, ' ')) AS word, LATERAL (SELECT CASE
        WHEN word ~ '[0-9]' THEN word ELSE (ts_lexize(row.dictionary::regdictionary, word))[1]
    END AS lexeme) AS stem
    WHERE lexeme <> ''
"""

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


def words(text: str) -> list[str]:
    """Lower case, without accents, letters apart from digits; a number also together with its neighbours.

    So "NEN-EN 361", "EN361" and "en 361" share "en361", and "85 dB(A)" has "85db".
    """
    folded = "".join(each for each in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(each))
    tokens = [token[:LONGEST_WORD].replace(",", ".") for token in TOKEN.findall(folded)]
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


def understand(text: str, *, also: Sequence[str] = ()) -> Question:
    """What to look for; asks the database for stems, for compounds and for how rare each word is.

    What the question says in other words is found `also`. It can add to a score, and is not missed where it is not.
    """
    every = list(dict.fromkeys(words(text)))[:MOST_WORDS]
    # "Hoe laat is het?" does not ask for the word "laat", but who types nothing else does.
    asked = [word for word in every if word not in FILLERS or len(every) == 1]
    others = [word for word in dict.fromkeys(words(" ".join(also))) if word not in asked]
    terms = []
    weight = 0.0
    for found in prepared(UNDERSTAND, {"words": asked + others, "most_parts": MOST_PARTS}) if asked or others else ():
        if not found["lexemes"]:
            continue
        word, parts, total = found["word"], found["parts"], found["total"]
        worth = 1 if word in asked else OTHER_WORD
        term = Term(
            word=word,
            asked=word in asked,
            exact=_any_of(found["lexemes"]),
            parts=_any_of(parts),
            exact_weight=worth * _rarity(found["exact_rows"], of=total),
            parts_weight=worth * PART * _rarity(found["parts_rows"], of=total) if parts else 0,
            exact_rows=found["exact_rows"],
            parts_rows=found["parts_rows"],
        )
        weight += max(term.exact_weight, term.parts_weight) if term.asked else 0
        terms.append(term)
    return Question(terms=terms, weight=weight)


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
        part.lexemes AS parts, part.rows AS parts_rows,
        (SELECT coalesce(max(rows), 0) FROM words WHERE lexeme = '') AS total
    FROM asked, LATERAL (
        SELECT coalesce(array_agg(lexeme), '{}') AS lexemes, coalesce(sum(rows), 0)::int AS rows FROM (
            SELECT lexeme, rows FROM parts
            WHERE parts.position = asked.position AND lexeme <> ALL(asked.lexemes)
            ORDER BY length(lexeme), lexeme LIMIT %(most_parts)s::int
        ) AS nearest
    ) AS part
    ORDER BY position
"""
