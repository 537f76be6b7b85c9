"""What is searched, and the columns and indexes that make it findable."""

from dataclasses import dataclass

from django.db import connection, transaction
from pgvector import Vector as VectorText
from psycopg.sql import SQL, Composed, Identifier, Literal

from agentbridge.embeddings import Embedder, vectors_of
from agentbridge.lexical import DICTIONARIES, TERMS, words

WORDED_AT_ONCE = 500
EMBEDDED_AT_ONCE = 32
# In the index a number has two bytes, which halves what a search has to read; hits are weighed by the whole vectors.
# More dimensions than that no index can have.
MOST_INDEXED = 4000


@dataclass(frozen=True)
class Shelf:
    """A table that is searched, in the words of SQL."""

    table: str
    source: str
    live: str
    language: str
    # What is embedded, and what is searched for words.
    meaning: str
    wording: str
    # What a hit carries.
    columns: str

    def compose(self, statement: str, **parts: str) -> Composed:
        return SQL(statement).format(
            table=Identifier(self.table),
            **{
                name: SQL(getattr(self, name))
                for name in ("source", "live", "language", "meaning", "wording", "columns")
            },
            **{name: SQL(part) for name, part in parts.items()},
        )


GUIDELINES = Shelf(
    table="chunks",
    source="chunks JOIN documents ON documents.id = chunks.document_id",
    live="chunks.retired_at IS NULL AND documents.retired_at IS NULL",
    language="documents.language",
    meaning="concat_ws('. ', title, nullif(nullif(section, title), ''), text)",
    wording="concat_ws(' ', title, norm, array_to_string(subjects, ' '), section, text)",
    columns="chunks.id AS chunk_id, document_id, title, source, norm, version, url, language, subjects, section, text",
)
PRODUCTS = Shelf(
    table="products",
    source="products",
    live="products.retired_at IS NULL",
    language="'nl'",
    meaning="concat_ws('. ', name, category, description, array_to_string(subjects, ', '))",
    wording="concat_ws(' ', sku, name, category, norm, description, array_to_string(subjects, ' '))",
    columns="products.id AS product_id, sku, name, category, norm, description, url, price, currency, subjects",
)
SHELVES = (GUIDELINES, PRODUCTS)


def count_waiting(shelf: Shelf, *, embedder: Embedder) -> int:
    with connection.cursor() as cursor:
        cursor.execute(shelf.compose(COUNT_WAITING), [embedder.name])
        [[count]] = cursor.fetchall()
    return int(count)


def take_in_words(shelf: Shelf) -> None:
    """Store the stems of every row that has new words, and drop the vector of what it said before."""
    while _take_in_batch(shelf):
        pass


def _take_in_batch(shelf: Shelf) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(shelf.compose(UNWORDED), [WORDED_AT_ONCE])
        rows = cursor.fetchall()
        if rows:
            ids, hashes, languages, texts = zip(*rows, strict=True)
            dictionaries = [DICTIONARIES[language] for language in languages]
            worded = [" ".join(dict.fromkeys(words(text))) for text in texts]
            cursor.execute(shelf.compose(STORE_WORDS), [list(ids), list(hashes), dictionaries, worded])
    return len(rows)


def count_words() -> None:
    """Count in how many rows each stem occurs; the empty one stands for all rows."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(COUNT_WORDS)


def embed_batch(shelf: Shelf, *, embedder: Embedder) -> int:
    """Embed some rows that have no vector of this model. How many; 0 when all have one."""
    with connection.cursor() as cursor:
        cursor.execute(shelf.compose(UNEMBEDDED), [embedder.name, EMBEDDED_AT_ONCE])
        rows = cursor.fetchall()
    if rows:
        ids, hashes, texts = zip(*rows, strict=True)
        # Without a transaction: a model may take its time.
        vectors = [
            None if vector is None else VectorText(vector).to_text() for vector in vectors_of(texts, embedder=embedder)
        ]
        with connection.cursor() as cursor:
            cursor.execute(shelf.compose(STORE_VECTORS), [embedder.name, list(ids), list(hashes), vectors])
    return len(rows)


def index_vectors(shelf: Shelf) -> None:
    """Make the index for every number of dimensions that occurs and has none; that of the bundled model is there."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(shelf.compose(DIMENSIONS), [f"idx_{shelf.table}_embedding_", MOST_INDEXED])
        for (dimensions,) in cursor.fetchall():
            # PostgreSQL makes no index on a table while a foreign key of this transaction waits to be checked.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(
                SQL(INDEX_VECTORS).format(
                    name=Identifier(f"idx_{shelf.table}_embedding_{dimensions}"),
                    table=Identifier(shelf.table),
                    vector=SQL(indexed(dimensions)),
                    dimensions=Literal(dimensions),
                )
            )


def indexed(dimensions: int) -> str:
    """The type in which vectors of so many dimensions are compared."""
    return f"halfvec({dimensions})" if dimensions <= MOST_INDEXED else f"vector({dimensions})"


COUNT_WAITING = """
    SELECT count(*) FROM {source} WHERE {live}
        AND ({table}.embedding_model <> %s OR {table}.indexed_hash <> {table}.content_hash OR {table}.terms IS NULL)
"""

UNWORDED = """
    SELECT {table}.id, {table}.content_hash, {language}, {wording} FROM {source}
    WHERE {live} AND ({table}.indexed_hash <> {table}.content_hash OR {table}.terms IS NULL)
    LIMIT %s FOR UPDATE OF {table}
"""

STORE_WORDS = f"""
    UPDATE {{table}} SET indexed_hash = content_hash, embedding = NULL, embedding_model = '', terms = ({TERMS})
    FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS row (id, hash, dictionary, words)
    WHERE {{table}}.id = row.id AND content_hash = hash
"""  # noqa: S608

COUNT_WORDS = """
    CREATE TEMP TABLE counted ON COMMIT DROP AS
        SELECT word AS lexeme, ndoc AS rows FROM ts_stat($$
            SELECT terms FROM chunks WHERE retired_at IS NULL
            UNION ALL SELECT terms FROM products WHERE retired_at IS NULL
        $$)
        UNION ALL SELECT '', count(*) FROM (
            SELECT FROM chunks WHERE retired_at IS NULL UNION ALL SELECT FROM products WHERE retired_at IS NULL
        ) AS live;
    DELETE FROM words WHERE NOT EXISTS (SELECT FROM counted WHERE counted.lexeme = words.lexeme);
    INSERT INTO words (lexeme, rows) SELECT lexeme, rows FROM counted
        ON CONFLICT (lexeme) DO UPDATE SET rows = excluded.rows WHERE words.rows <> excluded.rows;
    DROP TABLE counted;
"""

UNEMBEDDED = """
    SELECT {table}.id, {table}.content_hash, {meaning} FROM {source}
    WHERE {live} AND {table}.embedding_model <> %s LIMIT %s
"""

# What was changed in the meantime is left for the next time.
STORE_VECTORS = """
    UPDATE {table} SET embedding = row.vector::vector, embedding_model = %s
    FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS row (id, hash, vector)
    WHERE {table}.id = row.id AND content_hash = hash
"""

DIMENSIONS = """
    SELECT dimensions FROM (
        SELECT DISTINCT vector_dims(embedding) AS dimensions FROM {table}
        WHERE retired_at IS NULL AND embedding IS NOT NULL
    ) AS occurring
    WHERE to_regclass(%s || dimensions) IS NULL AND dimensions <= %s
"""

INDEX_VECTORS = """
    CREATE INDEX {name} ON {table} USING hnsw ((embedding::{vector}) halfvec_cosine_ops)
    WHERE retired_at IS NULL AND vector_dims(embedding) = {dimensions}
"""
