"""The statement that a search is, and its parameters."""

from collections.abc import Sequence
from functools import cache
from typing import Any, LiteralString

from psycopg.sql import Composed

from agentbridge.indexing import Shelf, indexed
from agentbridge.lexical import Question

# How many words a statement has room for; a few sizes, so that each is planned once and not for every question.
SLOTS = (4, 8, 16, 32, 64, 128, 512)

# What one word of the question adds to a row. A list of words would be unpacked anew for every row, which takes five
# times as long as this.
WEIGHT = """
    CASE WHEN words @@ %(first{slot})s::tsquery THEN %(first_weight{slot})s::float8
        WHEN words @@ %(second{slot})s::tsquery THEN %(second_weight{slot})s::float8 ELSE 0 END AS weight{slot}
"""

# A word is looked up in its index, however common the planner believes it to be: reading all rows instead takes fifty
# times as long, and its guess is wrong for every word that it keeps no count of. Where the guesses say nothing, one
# plan for all questions is as good as one for each, and saves making it.
PLANNING: dict[LiteralString, LiteralString] = {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}

# The dimensions are part of the statement, as they are of the index. Without a vector nothing is near, and every
# similarity is unknown; in its place stands what the words suggest.
SEARCH = """
    WITH nearest AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.embedding_model = %(model)s::text AND vector_dims({table}.embedding) = {dimensions}
            AND %(vector)s::vector IS NOT NULL
        ORDER BY {table}.embedding::{kind} <=> %(vector)s::{kind} LIMIT %(nearest)s::int
    ), worded AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.terms @@ %(together)s::tsquery LIMIT %(worded)s::int
    ), worded_once AS MATERIALIZED (
        SELECT {table}.id FROM {candidates}
        WHERE {where} AND {table}.terms @@ %(rarest)s::tsquery LIMIT %(worded)s::int
    ), by_words AS MATERIALIZED (
        SELECT id, is_near, lexical, matched, rank() OVER (ORDER BY lexical DESC) AS lexical_rank
        FROM (
            SELECT {table}.id, is_near, ARRAY[{matched}] AS matched,
                -- Other words for what was asked never make up for all of it.
                greatest({asked}, least(0.99::float8, {every})) AS lexical
            FROM (
                SELECT id, bool_or(is_near) AS is_near FROM (
                    SELECT id, true AS is_near FROM nearest
                    UNION ALL SELECT id, false FROM worded UNION ALL SELECT id, false FROM worded_once
                ) AS found GROUP BY id
            ) AS candidate
            JOIN {table} ON {table}.id = candidate.id,
            -- Stripped for a copy that is unpacked once, not for every word; OFFSET 0 keeps both from being worked out
            -- again at every mention.
            LATERAL (SELECT strip({table}.terms) AS words OFFSET 0) AS row,
            LATERAL (SELECT {weights} OFFSET 0) AS term
        ) AS worded_so
    ), weighed AS MATERIALIZED (
        SELECT {table}.id, lexical, matched, lexical_rank, CASE
            WHEN {language} = %(language)s::text THEN %(preference)s::float8 ELSE 0
        END AS preference, CASE
            WHEN {table}.embedding_model = %(model)s::text AND vector_dims({table}.embedding) = {dimensions}
            THEN nullif(1 - ({table}.embedding <=> %(vector)s::vector), 'NaN')
        END AS similarity
        -- Reading a vector costs more than reading the words, so it is done for the most promising alone.
        FROM {source} JOIN by_words ON by_words.id = {table}.id
        WHERE {live} AND (is_near OR lexical_rank <= %(nearest)s::int)
    ), ranked AS MATERIALIZED (
        SELECT *,
            CASE WHEN similarity IS NOT NULL THEN rank() OVER (ORDER BY similarity DESC NULLS LAST) END
                AS similarity_rank
        FROM weighed, LATERAL (
            SELECT %(similarity_weight)s::float8 * coalesce(similarity, lexical * 0.4)
                + %(words_weight)s::float8 * lexical AS score
        ) AS sum
        ORDER BY score + preference DESC, id LIMIT %(limit)s::int
    )
    SELECT {columns}, score, similarity, lexical, matched, similarity_rank,
        CASE WHEN lexical > 0 THEN lexical_rank END AS lexical_rank,
        (SELECT score FROM thresholds WHERE searched = %(searched)s AND embedding_model = %(model)s::text) AS threshold
    FROM {source} JOIN ranked ON ranked.id = {table}.id
    ORDER BY score + preference DESC, {table}.id
"""


def in_slots(question: Question, *, slots: int) -> dict[str, Any]:
    """The terms as parameters: in each slot what finds a word and what that is worth, the worthier first."""
    parameters: dict[str, Any] = {}
    empty = ("", 0.0)
    for slot in range(slots):
        ways, asked = [empty, empty], False
        if slot < len(question.terms):
            term = question.terms[slot]
            ways = [(term.exact, term.exact_weight), (term.parts, term.parts_weight)]
            ways.sort(key=lambda way: way[1], reverse=True)
            asked = term.asked
        (first, first_weight), (second, second_weight) = ways
        parameters |= {
            f"first{slot}": first,
            f"first_weight{slot}": first_weight / (question.weight or 1),
            f"second{slot}": second,
            f"second_weight{slot}": second_weight / (question.weight or 1),
            f"asked{slot}": float(asked),
        }
    return parameters


@cache
def search_statement(shelf: Shelf, conditions: Sequence[str], *, dimensions: int, slots: int) -> Composed:
    return shelf.compose(
        SEARCH,
        # A document and its chunks are retired together, so only a filter needs both to find candidates.
        candidates=shelf.source if conditions else shelf.table,
        where=" AND ".join(
            [
                f"{shelf.table}.retired_at IS NULL",
                *(f"{condition} %({n})s" for n, condition in enumerate(conditions)),
            ]
        ),
        weights=", ".join(WEIGHT.format(slot=slot) for slot in range(slots)),
        asked=" + ".join(f"weight{slot} * %(asked{slot})s::float8" for slot in range(slots)),
        every=" + ".join(f"weight{slot}" for slot in range(slots)),
        matched=", ".join(f"weight{slot} > 0" for slot in range(slots)),
        kind=indexed(dimensions),
        dimensions=str(dimensions),
    )
