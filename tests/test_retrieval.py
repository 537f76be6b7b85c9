import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from psycopg.sql import SQL

from agentbridge import embeddings, indexing, question_vectors, retrieval
from agentbridge.background import perform
from agentbridge.database import prepared
from agentbridge.evaluation import Evaluation, evaluate, load
from agentbridge.lexical import understand, words
from agentbridge.models import Chunk, Document, Product, Threshold, Word
from agentbridge.providers import configured_model
from agentbridge.retrieval import search_guidelines, search_products
from agentbridge.searchable import make_searchable
from agentbridge.warming import warm_up
from conversations.models import Message
from conversations.openings import TurnRequest
from conversations.turns import run_turn

DATA = Path(__file__).parent / "data"

GUIDELINES = {
    "Valbeveiliging": "Boven 2,5 meter is valbeveiliging verplicht. Een harnas volgens NEN-EN 361 vangt de drager op.",
    "Schoenen": "Draag schoenen van klasse S3 op de bouwplaats; de neus is van staal.",
    "Adembescherming": "Gebruik bij stof een halfgelaatsmasker van klasse FFP2 of hoger.",
    "Lawaai": "Vanaf 85 dB(A) is gehoorbescherming verplicht; vanaf 80 dB(A) biedt de werkgever haar aan.",
    "Rolsteigers": "Verplaats een rolsteiger nooit terwijl er personen op staan. Blokkeer de wielen.",
    "Tillen": "Til niet meer dan 23 kilo. Buig door de knieën om rugklachten te voorkomen.",
    "Gevaarlijke stoffen": "Bewaar chemicaliën in een lekbak en lees het veiligheidsinformatieblad.",
    "Vangnetten": "Een vangnet voldoet aan EN 1263 en hangt zo hoog mogelijk.",
    "Beeldschermwerk": "Onderbreek werk achter de computer na twee uur met een pauze.",
}


def add_guideline(title: str, text: str, **fields: Any) -> Chunk:
    document = Document.objects.create(origin=title, title=title, content_hash=title, **fields)
    return document.chunks.create(position=0, text=text, content_hash=text)


def add_product(name: str, description: str, **fields: Any) -> Product:
    return Product.objects.create(
        **{"sku": name, "category": "diversen", **fields}, name=name, description=description, content_hash=description
    )


def titles(query: str, **options: Any) -> list[str]:
    return [hit.title for hit in search_guidelines(query, **options)]


@pytest.fixture(scope="module")
def indexed_guidelines(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        for title, text in GUIDELINES.items():
            add_guideline(title, text)
        make_searchable()
        yield
        for model in (Document, Word, Threshold):
            model.objects.all().delete()


@pytest.fixture
def guidelines(indexed_guidelines: None, db: None) -> None:
    """The guidelines above, searchable; what a test does with them is undone."""


@pytest.fixture
def empty(db: None) -> None:
    for model in (Document, Word, Threshold):
        model.objects.all().delete()


class StubEmbeddings(ThreadingHTTPServer):
    """An OpenAI-compatible /v1/embeddings: texts with the same words are near to each other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dimensions = 64
        self.failing = False
        # Cleared, no question has an answer until it is set again.
        self.goes_on = threading.Event()
        self.goes_on.set()
        # A word that it wants nothing to do with.
        self.refused = ""
        self.asked: list[list[str]] = []
        self.embedded: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: StubEmbeddings

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.asked.append(texts)
        self.server.goes_on.wait(60)
        refused = self.server.refused
        status = 400 if self.server.failing or (refused and any(refused in text for text in texts)) else 200
        if status == 200:
            self.server.embedded += texts
        data = [{"object": "embedding", "index": n, "embedding": self._vector(t)} for n, t in enumerate(texts)]
        body = json.dumps({"object": "list", "model": "stub", "data": data}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _vector(self, text: str) -> list[float]:
        vector = np.full(self.server.dimensions, 0.01)
        for word in words(text):
            vector[sum(map(ord, word)) % self.server.dimensions] += 1
        return [float(each) for each in vector]

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stub_embeddings(settings: Any) -> Iterator[StubEmbeddings]:
    server = StubEmbeddings()
    settings.EVI = settings.EVI.model_copy(
        update={"embedding_model": "stub", "embedding_base_url": f"http://127.0.0.1:{server.server_port}/v1"}
    )
    yield server
    server.goes_on.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("beveiliging tegen vallen", "Valbeveiliging"),
        ("veiligheidsschoenen", "Schoenen"),
        ("steiger verplaatsen", "Rolsteigers"),
        ("masker", "Adembescherming"),
        ("harnassen", "Valbeveiliging"),
        ("blokkering van wielen", "Rolsteigers"),
    ],
)
def test_dutch_compounds_are_found_by_their_parts_and_the_other_way_round(
    query: str, title: str, guidelines: None
) -> None:
    best = search_guidelines(query, weights=retrieval.Weights(similarity=0), min_score=0)[0]
    assert best.title == title
    assert best.matched


def test_a_short_part_finds_compounds_and_not_every_word_that_begins_like_it(empty: None) -> None:
    add_guideline("Valuta", "Valuta wisselen kan bij de balie.")
    add_guideline("Valbeveiliging", "Valbeveiliging is verplicht. Beveiliging van de rand gaat voor.")
    make_searchable()
    hits = search_guidelines("vallen", min_score=-1)
    assert {hit.title: bool(hit.lexical) for hit in hits} == {"Valbeveiliging": True, "Valuta": False}


@pytest.mark.parametrize("query", ["EN 361", "NEN-EN 361", "EN361", "en 361", "nen en361", "Welke eisen stelt EN 361?"])
def test_a_norm_is_found_however_it_is_written(query: str, guidelines: None) -> None:
    assert titles(query)[0] == "Valbeveiliging"


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("S3", "Schoenen"),
        ("FFP2", "Adembescherming"),
        ("ffp 2", "Adembescherming"),
        ("85 dB(A)", "Lawaai"),
        ("EN 1263", "Vangnetten"),
    ],
)
def test_classes_and_limits_are_found_exactly(query: str, title: str, guidelines: None) -> None:
    best = search_guidelines(query)[0]
    assert best.title == title
    assert best.lexical == pytest.approx(1)


def test_a_norm_that_is_not_there_is_not_another_norm(guidelines: None) -> None:
    assert all(not hit.lexical for hit in search_guidelines("EN 362", min_score=-1))


@pytest.mark.parametrize("query", ["rugklachten door tillen", "RUGKLACHTEN DOOR TILLEN", "Knieen buigen", "knieën"])
def test_case_and_accents_do_not_matter(query: str, guidelines: None) -> None:
    assert titles(query)[0] == "Tillen"


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("valbeveilging", "Valbeveiliging"),
        ("rolstijger", "Rolsteigers"),
        ("rugklahcten", "Tillen"),
        ("chemikaliën", "Gevaarlijke stoffen"),
        ("vangnett", "Vangnetten"),
    ],
)
def test_a_slip_of_the_finger_finds_what_was_meant(query: str, title: str, guidelines: None) -> None:
    assert titles(query)[:1] == [title]


@pytest.mark.parametrize("query", ["lopen", "kracht", "onderzoek", "spoel", "valuta"])
def test_another_word_is_no_slip_of_the_finger(query: str, guidelines: None) -> None:
    assert not understand(query).corrections


def test_a_compound_is_no_slip_of_the_finger(empty: None) -> None:
    add_guideline("Klimaat", "De minimale temperatuur is een minimum dat de werkgever bewaakt.")
    make_searchable()
    assert not understand("minimumloon").corrections
    assert understand("minimaleen").corrections


def test_what_is_meant_is_found_without_its_words(guidelines: None) -> None:
    hits = search_guidelines("Hoe vaak moet ik pauzeren achter mijn pc?")
    assert hits[0].title == "Beeldschermwerk"


def test_a_question_in_english_finds_dutch_text(guidelines: None) -> None:
    assert titles("From which noise level is hearing protection mandatory?")[0] == "Lawaai"


@pytest.mark.parametrize(
    "query",
    [
        "Hoeveel belasting betaal ik over mijn spaargeld?",
        "Recept voor appeltaart met kaneel",
        "Who won the football match yesterday?",
        "Hoe laat is het?",
        "Fijne avond nog!",
    ],
)
def test_nothing_relevant_is_an_answer(query: str, guidelines: None) -> None:
    assert search_guidelines(query) == []


@pytest.mark.parametrize(
    "word", ["harnas", "lekbak", "veiligheidsinformatieblad", "gehoorbescherming", "halfgelaatsmasker"]
)
def test_a_keyword_that_is_in_the_text_always_finds_it(word: str, guidelines: None) -> None:
    # Whatever the threshold is.
    assert search_guidelines(word, min_score=99)


def test_a_hit_says_why_it_ranks(guidelines: None) -> None:
    first, *others = search_guidelines("harnas norm", min_score=-1)
    assert (first.title, first.similarity_rank, first.lexical_rank) == ("Valbeveiliging", 1, 1)
    assert set(first.matched) == {"harnas"}
    assert first.similarity is not None
    assert first.score == pytest.approx(first.similarity + 0.25 * first.lexical)
    assert [hit.score for hit in (first, *others)] == sorted((hit.score for hit in (first, *others)), reverse=True)


def test_a_hit_carries_what_a_citation_needs(empty: None) -> None:
    chunk = add_guideline(
        "Ladders",
        "Plaats een ladder onder een hoek van 75 graden.",
        source="Arbocatalogus",
        norm="EN 131",
        version="2024",
        url="https://example.org/ladders",
        subjects=["ladders"],
    )
    Chunk.objects.update(section="Plaatsing")
    make_searchable()
    [hit] = search_guidelines("EN131 ladder")
    assert (hit.chunk_id, hit.document_id, hit.source, hit.norm, hit.version, hit.url, hit.section, hit.subjects) == (
        chunk.id,
        chunk.document_id,
        "Arbocatalogus",
        "EN 131",
        "2024",
        "https://example.org/ladders",
        "Plaatsing",
        ("ladders",),
    )


@pytest.mark.parametrize("model", [Chunk, Document])
def test_what_is_retired_is_not_found(model: type[Chunk | Document], guidelines: None) -> None:
    assert titles("harnas")
    model.objects.update(retired_at=timezone.now())
    assert search_guidelines("harnas", min_score=-1) == []


def test_a_language_is_preferred_or_kept_to(empty: None) -> None:
    add_guideline("Helm", "Draag een helm op de steiger.", language="nl")
    add_guideline("Helmet", "Wear a helmet on the scaffold.", language="en")
    make_searchable()
    helmets = "helm helmet steiger scaffold"
    assert titles(helmets, language="nl")[0] == "Helm"
    assert titles(helmets, language="en")[0] == "Helmet"
    assert titles("helmet", language="nl")[0] == "Helmet"
    assert titles(helmets, language="en", only_language=True) == ["Helmet"]
    assert titles("helmets", language="en", only_language=True) == ["Helmet"]


def test_guidelines_are_kept_to_subjects(empty: None) -> None:
    add_guideline("Dakwerk", "Draag een harnas op het dak.", subjects=["hoogte"])
    add_guideline("Klimmen", "Draag een harnas in de hal.", subjects=["sport"])
    make_searchable()
    assert titles("harnas", subjects=["sport", "spel"]) == ["Klimmen"]


def test_products_are_found_by_name_number_and_category(empty: None) -> None:
    add_product("Harnas Pro", "Valharnas met twee punten.", sku="VH-2041", category="hoogte", norm="EN 361")
    add_product("Oorkap", "Dempt 30 dB.", sku="OK-7", category="gehoor", subjects=["lawaai"])
    add_product("Veiligheidslaars", "Waterdichte laars van klasse S5.", sku="LA-1", category="voeten")
    make_searchable()
    assert search_products("EN361")[0].sku == "VH-2041"
    assert search_products("vh2041")[0].name == "Harnas Pro"
    assert search_products("laarzen tegen water")[0].sku == "LA-1"
    assert search_products("harnas", category="gehoor", min_score=-1)[0].sku == "OK-7"
    assert [hit.sku for hit in search_products("oorkappen", subjects=["lawaai"])] == ["OK-7"]
    Product.objects.update(retired_at=timezone.now())
    assert search_products("harnas", min_score=-1) == []


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "\0",
        "de het een",
        "?",
        "a" * 10_000,
        "woord " * 2_000,
        "🦺",
        "'; DROP TABLE chunks; --",
        "%s %(x)s {}",
        "\ud800",
        "'\"\\ & | ! :* <->",
    ],
)
def test_no_question_is_too_strange(query: str, guidelines: None) -> None:
    assert isinstance(search_guidelines(query), list)
    assert isinstance(search_products(query), list)


@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=300) | st.text(alphabet="abc'\\%_&|!():*<->0123456789. ", max_size=60))
def test_no_text_breaks_the_search(query: str, guidelines: None) -> None:
    for hit in search_guidelines(query, min_score=-2):
        assert 0 <= hit.lexical <= 1.0001


@hypothesis_settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300))
def test_any_text_can_be_made_searchable(text: str, empty: None) -> None:
    Document.objects.all().delete()
    add_guideline("Vreemd", text)
    assert make_searchable() == 1


def plan_of_search(query: str, monkeypatch: pytest.MonkeyPatch) -> str:
    seen: list[str] = []

    def explained(statement: Any, parameters: Any, **options: Any) -> Any:
        plan = prepared(SQL("EXPLAIN ") + statement, parameters, **options)
        seen.extend(row["QUERY PLAN"] for row in plan)
        return prepared(statement, parameters, **options)

    monkeypatch.setattr(retrieval, "prepared", explained)
    search_guidelines(query)
    return "\n".join(seen)


def test_the_server_keeps_the_plans_of_a_search(guidelines: None) -> None:
    for _ in range(2):
        search_guidelines("harnas")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%nearest AS%%'")
        assert cursor.fetchone() == (1,)


def test_many_rows_are_searched_through_the_indexes(guidelines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many as make a look at each of them dearer, with vectors of all directions.
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO chunks (document_id, position, text, content_hash, terms, embedding_model, embedding)
            SELECT (SELECT id FROM documents LIMIT 1), n, '', '', array_to_tsvector(ARRAY['w' || n]), %s, (
                SELECT array_agg(random() - 0.5 + 0 * n * x) FROM generate_series(1, 512) AS x
            )::vector FROM generate_series(1, 3000) AS n
            """,
            [embeddings.BundledEmbedder.name],
        )
        cursor.execute("ANALYZE chunks, documents")
        # What is shown is that the indexes serve; which way is quicker among so few is the planner's guess.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
    plan = plan_of_search("harnas", monkeypatch)
    assert "Index Scan using idx_chunks_embedding_512" in plan
    assert "Bitmap Index Scan on idx_chunks_terms" in plan
    assert titles("harnas")[0] == "Valbeveiliging"


def test_of_many_rows_with_the_same_words_those_with_two_of_them_are_weighed(guidelines: None) -> None:
    """Without vectors, so that the words alone must find it among a thousand that have just one."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO chunks (document_id, position, text, content_hash, indexed_hash, terms)
            SELECT (SELECT id FROM documents LIMIT 1), n, array_to_string(words, ' '), n, n, array_to_tsvector(words)
            FROM generate_series(1, 1000) AS n, LATERAL (SELECT CASE
                WHEN n = 700 THEN ARRAY['boor', 'kraan'] WHEN n % 2 = 0 THEN ARRAY['boor'] ELSE ARRAY['kraan']
            END AS words) AS worded
            """
        )
    indexing.count_words()
    assert search_guidelines("kraan boor", limit=1)[0].text == "boor kraan"


def test_a_search_takes_few_queries(guidelines: None, django_assert_max_num_queries: Any) -> None:
    # Two more are the savepoint that stands for the transaction.
    with django_assert_max_num_queries(6):
        search_guidelines("harnas")


def test_what_is_searchable_is_not_embedded_again(guidelines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "embed_batch", lambda *_, **__: pytest.fail("embedded again"))
    monkeypatch.setattr(embeddings.BundledEmbedder, "embed", lambda *_: pytest.fail("embedded again"))
    assert make_searchable() == 0


def test_new_words_replace_the_old_ones(guidelines: None) -> None:
    Chunk.objects.filter(text__contains="harnas").update(text="Er is een trapleuning.", content_hash="new")
    assert make_searchable() == 1
    assert all(not hit.lexical for hit in search_guidelines("harnas", min_score=-1))
    assert titles("trapleuning")[0] == "Valbeveiliging"


def test_a_row_that_is_not_embedded_yet_is_found_by_its_words(
    stub_embeddings: StubEmbeddings, guidelines: None
) -> None:
    stub_embeddings.failing = True
    add_guideline("Heftruck", "Een heftruck wordt bestuurd door wie dat aantoonbaar kan.")
    with pytest.raises(Exception, match="400"):
        make_searchable()
    stub_embeddings.failing = False
    best = search_guidelines("Wie bestuurt een heftruck?")[0]
    assert (best.title, best.similarity, best.matched) == ("Heftruck", None, ("heftruck",))


def test_a_row_that_the_model_refuses_is_found_by_its_words_and_holds_up_no_other(
    stub_embeddings: StubEmbeddings, guidelines: None
) -> None:
    stub_embeddings.refused = "heftruck"
    add_guideline("Heftruck", "Een heftruck wordt bestuurd door wie dat aantoonbaar kan.")
    assert (make_searchable(), make_searchable()) == (len(GUIDELINES) + 1, 0)
    best = search_guidelines("Wie bestuurt een heftruck?")[0]
    assert (best.title, best.similarity) == ("Heftruck", None)
    assert search_guidelines("harnas")[0].similarity


def test_words_still_find_when_the_model_is_away(
    stub_embeddings: StubEmbeddings, guidelines: None, caplog: pytest.LogCaptureFixture
) -> None:
    stub_embeddings.failing = True
    best = search_guidelines("Is een harnas verplicht?")[0]
    assert (best.title, best.similarity) == ("Valbeveiliging", None)
    assert "answered by its words" in caplog.text


def test_words_still_find_when_the_model_never_answers(
    stub_embeddings: StubEmbeddings, guidelines: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(question_vectors, "PATIENCE_SECONDS", 0.3)
    stub_embeddings.goes_on.clear()
    # More than there are threads for any of it.
    for _ in range(6):
        best = search_guidelines("Is een harnas verplicht?")[0]
        assert (best.title, best.similarity) == ("Valbeveiliging", None)
    assert "has not answered within 0.3 s" in caplog.text


def test_what_is_to_be_searchable_waits_for_the_model_no_longer_than_it_should(
    stub_embeddings: StubEmbeddings, empty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "BATCH_SECONDS", 0.3)
    add_guideline("Heftruck", "Een heftruck wordt bestuurd door wie dat aantoonbaar kan.")
    stub_embeddings.goes_on.clear()
    with pytest.raises(embeddings.EmbeddingAwayError, match=r"within 0\.3 s"):
        make_searchable()


def test_what_was_embedded_before_a_failure_stays_embedded(
    stub_embeddings: StubEmbeddings, empty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "EMBEDDED_AT_ONCE", 4)
    for number in range(10):
        add_guideline(f"Regel {number}", f"Tekst {number}")

    def fail_later(done: int, total: int) -> None:
        assert total == 10
        stub_embeddings.failing = done >= 8

    with pytest.raises(Exception, match="400"):
        make_searchable(progress=fail_later)
    assert Chunk.objects.filter(embedding_model="stub").count() == 8
    stub_embeddings.failing = False
    assert make_searchable() == 2
    assert sorted(text for text in stub_embeddings.embedded if "Tekst" in text) == [
        f"Regel {number}. Tekst {number}" for number in range(10)
    ]


def test_another_model_embeds_everything_again(guidelines: None, stub_embeddings: StubEmbeddings) -> None:
    # Not yet: what the old model made cannot be compared.
    assert {hit.similarity for hit in search_guidelines("harnas")} == {None}
    assert make_searchable() == len(GUIDELINES)
    assert set(Chunk.objects.values_list("embedding_model", flat=True)) == {"stub"}
    assert search_guidelines("harnas")[0].similarity
    assert Threshold.objects.filter(embedding_model="stub", searched="chunks").exists()
    assert len(stub_embeddings.embedded) >= len(GUIDELINES)


@pytest.mark.parametrize(("dimensions", "kind"), [(64, "halfvec(64)"), (2500, "halfvec(2500)")])
def test_every_number_of_dimensions_has_an_index(
    dimensions: int, kind: str, stub_embeddings: StubEmbeddings, guidelines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_embeddings.dimensions = dimensions
    make_searchable()
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", [f"idx_chunks_embedding_{dimensions}"])
        [[definition]] = cursor.fetchall()
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
    assert kind in definition
    assert f"Index Scan using idx_chunks_embedding_{dimensions}" in plan_of_search("harnas", monkeypatch)
    assert titles("harnas")[0] == "Valbeveiliging"


def test_more_dimensions_than_an_index_can_hold_are_searched_one_by_one(
    stub_embeddings: StubEmbeddings, guidelines: None
) -> None:
    stub_embeddings.dimensions = 5000
    make_searchable()
    assert titles("harnas")[0] == "Valbeveiliging"


def test_many_threads_share_a_model_over_http(stub_embeddings: StubEmbeddings) -> None:
    embedder = embeddings.current_embedder()
    with ThreadPoolExecutor(8) as threads:
        vectors = list(threads.map(lambda n: embedder.embed([f"tekst {n}"]), range(40)))
    assert {len(vector) for [vector] in vectors} == {64}


def test_the_weights_are_there_before_anybody_asks() -> None:
    embeddings.embedder_for.cache_clear()
    warm_up().join()
    bundled = embeddings.embedder_for(embeddings.BUNDLED)
    assert embeddings.embedder_for.cache_info().hits == 1
    assert isinstance(bundled, embeddings.BundledEmbedder)
    assert bundled.is_loaded
    assert embeddings.current_embedder() is bundled


def test_the_bundled_model_loads_once_for_many_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        found: Sequence[Any] = list(
            threads.map(lambda _: embeddings.embedder_for("bundled").embed(["dak"])[0], range(16))
        )
    assert all(np.allclose(found[0], vector) for vector in found)


@pytest.fixture(scope="module")
def evaluations(django_db_setup: None, django_db_blocker: Any) -> dict[str, Evaluation]:
    with django_db_blocker.unblock():
        return {name: evaluate(load(DATA / f"{name}.json")) for name in ("care", "transport")}


@pytest.mark.parametrize("name", ["care", "transport"])
def test_retrieval_is_as_good_as_it_was(name: str, evaluations: dict[str, Evaluation]) -> None:
    evaluation = evaluations[name]
    assert evaluation.score("kw").recall_at_1 == 1
    assert evaluation.score("en").recall_at_1 >= 0.75
    assert evaluation.score("nl").recall_at_5 >= 0.6
    assert evaluation.score("nl").mrr >= 0.44
    # What the embedding alone does with the text as it is written.
    assert evaluation.score("nl").mrr >= evaluation.score("nl", way="embedding alone").mrr - 0.01


@pytest.mark.parametrize("name", ["care", "transport"])
def test_questions_about_other_things_are_refused_and_most_others_are_not(
    name: str, evaluations: dict[str, Evaluation]
) -> None:
    [in_force] = [each for each in evaluations[name].trade_offs if each.in_force]
    assert in_force.off_topic_refused >= 0.85
    assert in_force.answers_lost <= 0.25


def test_an_evaluation_leaves_what_evi_knows_alone(guidelines: None, tmp_path: Path) -> None:
    def contents() -> list[Any]:
        return [list(model.objects.order_by("pk").values()) for model in (Document, Chunk, Threshold)]

    before = contents()
    few = json.loads((DATA / "care.json").read_text())
    few["queries"] = few["queries"][:3]
    few["relevance"] = {query["id"]: few["relevance"][query["id"]] for query in few["queries"]}
    (tmp_path / "few.json").write_text(json.dumps(few))
    call_command("evaluate_retrieval", tmp_path / "few.json", svg=tmp_path / "picture.svg")
    assert str(contents()) == str(before)
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")
    assert titles("harnas")[0] == "Valbeveiliging"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "Invalid JSON"),
        ("{}", "passages: Field required"),
        ('{"passages": [], "queries": [], "relevance": {}}', "no query has an answer"),
        ('{"passages": [], "queries": [{"id": "q", "text": "?"}], "relevance": {"q": ["p"]}}', "not there: p"),
        ('{"passages": [], "queries": [{"id": "q", "text": "?"}], "relevance": {}}', "no relevance for q"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text(content)
    with pytest.raises(CommandError, match=rf"set\.json.*{complaint}"):
        call_command("evaluate_retrieval", path)


def test_reembed_says_how_many(empty: None, capsys: pytest.CaptureFixture[str]) -> None:
    add_guideline("Helm", "Draag een helm.")
    call_command("reembed")
    assert capsys.readouterr().out == "Embedded 1 rows.\n"


# Last, because it empties all tables.
@pytest.mark.django_db(transaction=True)
def test_two_at_once_embed_nothing_twice(stub_embeddings: StubEmbeddings, empty: None) -> None:
    for title, text in GUIDELINES.items():
        add_guideline(title, text)

    def work(_: int) -> int:
        try:
            return make_searchable()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(work, range(2))) == [0, len(GUIDELINES)]
    chunks = [text for text in stub_embeddings.embedded if text.split(".")[0] in GUIDELINES]
    assert len(chunks) == len(GUIDELINES)


@pytest.mark.django_db(transaction=True)
def test_questions_that_wait_for_a_model_far_away_hold_up_no_others(
    stub_embeddings: StubEmbeddings, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve people search, and the model does not answer; a thirteenth asks what needs no search."""
    settings.EVI = settings.EVI.model_copy(update={"model": "offline"})
    monkeypatch.setattr(question_vectors, "PATIENCE_SECONDS", 60)
    stub_embeddings.goes_on.clear()

    async def asked(text: str) -> str:
        return (await run_turn(TurnRequest(prompt=text, user_id="ann"))).text

    async def talk() -> None:
        searching = [
            asyncio.create_task(asked(text))
            for text in ["Is een harnas verplicht?", "Welke harnassen zijn er?", "Wat zei ik over het dak?"] * 4
        ]
        # And their clients ask for tags.
        told = "<chat_history>\nUSER: Is een harnas verplicht?\n</chat_history>"
        searching += [asyncio.create_task(perform("tags_generation", told, model=configured_model())) for _ in range(8)]
        while len(stub_embeddings.asked) < len(searching):
            await asyncio.sleep(0.01)
        assert "EVI" in await asked("Wie ben je?")
        assert not any(search.done() for search in searching)
        stub_embeddings.failing = True
        stub_embeddings.goes_on.set()
        # Without a vector, by words.
        assert all(await asyncio.gather(*searching))

    asyncio.run(asyncio.wait_for(talk(), 50))
    assert Message.objects.filter(status="complete", role="assistant").count() == 13
