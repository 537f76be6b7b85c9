"""The admin of what EVI knows, through its pages: who may read, add and retire, and why something is found."""

import re
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentbridge import ingest as ingesting
from agentbridge.ingest import ingest
from agentbridge.models import Chunk, Document, Product
from tests.documents import make_pdf

pytestmark = pytest.mark.django_db

DOCUMENTS = "/admin/agentbridge/document/"
PRODUCTS = "/admin/agentbridge/product/"
SEARCH = f"{DOCUMENTS}search/"
GUIDELINE = """---
title: Werken op hoogte
source: Arbocatalogus
norm: EN 361
version: "3"
valid_from: 2025-03-01
language: nl
subjects: [ladders]
---
# Werken op hoogte

Een inleiding met <script>alert(1)</script> erin.

## Ladders

Zet een ladder vast voordat u hem beklimt.

## Harnas

Controleer het harnas voor elk gebruik op slijtage.
"""
CATALOGUE = """sku,name,category,norm,description,url,price,currency,subjects
A-1,Veiligheidsharnas,Valbeveiliging,EN 361,Een licht harnas.,https://example.com/a1,1094.50,EUR,hoogte
B-1,Oordoppen,Gehoor,EN 352,Zachte doppen.,,2.95,EUR,
"""


class StaffClient(Protocol):
    def __call__(self, *permissions: str) -> Client: ...


@pytest.fixture
def staff_client() -> StaffClient:
    """Sign in as somebody who may do just this: `view_document`, `add_product`…"""

    def sign_in(*permissions: str) -> Client:
        user = User.objects.create_user("collega", is_staff=True)
        ours = Permission.objects.filter(content_type__app_label="agentbridge")
        user.user_permissions.set(ours.filter(codename__in=permissions))
        assert user.user_permissions.count() == len(permissions)
        client = Client(enforce_csrf_checks=False)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def viewer(staff_client: StaffClient) -> Client:
    return staff_client("view_document", "view_product")


@pytest.fixture
def editor(staff_client: StaffClient) -> Client:
    kinds = ("document", "product")
    return staff_client(*(f"{verb}_{kind}" for verb in ("view", "add", "change") for kind in kinds))


@pytest.fixture(autouse=True)
def committed() -> None:
    with connection.cursor() as cursor:
        # Outside a test, every document is committed before anything is indexed.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.fixture
def knowledge(tmp_path: Path) -> Document:
    (tmp_path / "hoogte.md").write_text(GUIDELINE)
    (tmp_path / "producten.csv").write_text(CATALOGUE)
    assert not ingest([tmp_path]).failures
    return Document.objects.get()


def page_of(row: Document | Product) -> str:
    return f"/admin/agentbridge/{row._meta.model_name}/{row.pk}/change/"


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode()).replace("\N{NO-BREAK SPACE}", " ")


def upload(client: Client, *files: tuple[str, str | bytes], to: str = DOCUMENTS) -> str:
    sent = [SimpleUploadedFile(name, text.encode() if isinstance(text, str) else text) for name, text in files]
    return text_of(client.post(f"{to}add/", {"uploads": sent}, follow=True))


def run_action(client: Client, action: str, row: Document | Product) -> str:
    address = DOCUMENTS if isinstance(row, Document) else PRODUCTS
    return text_of(client.post(address, {"action": action, "_selected_action": [str(row.pk)]}, follow=True))


def listed(client: Client, address: str, **query: str) -> set[str]:
    response: Any = client.get(address, query)
    assert response.status_code == 200
    return {str(row) for row in response.context["cl"].result_list}


# Reading


def test_the_list_shows_what_a_guideline_is(viewer: Client, knowledge: Document) -> None:
    page = text_of(viewer.get(DOCUMENTS))
    row = re.sub(r"<[^>]+>", " ", page[page.index("result_list") :])
    for shown in ("Werken op hoogte", "EN 361", "Arbocatalogus", "3", "1 maart 2025", "Nederlands", "actueel"):
        assert shown in row
    assert re.search(r"field-chunk_count[^>]*>\s*3\s*</td>", page)


def test_guidelines_are_filtered_and_searched(viewer: Client, knowledge: Document) -> None:
    Document.objects.create(
        origin="upload/x.md", title="Noise", language="en", content_hash="x", retired_at="2025-01-01T00:00Z"
    )
    assert listed(viewer, DOCUMENTS) == {"Werken op hoogte", "Noise"}
    assert listed(viewer, DOCUMENTS, stand="live") == {"Werken op hoogte"}
    assert listed(viewer, DOCUMENTS, stand="retired") == {"Noise"}
    assert listed(viewer, DOCUMENTS, language__exact="en") == {"Noise"}
    assert listed(viewer, DOCUMENTS, source="Arbocatalogus") == {"Werken op hoogte"}
    for term in ("hoogte", "EN 361", "arbocat", "ladders", "hoogte.md"):
        assert listed(viewer, DOCUMENTS, q=term) == {"Werken op hoogte"}


@pytest.mark.parametrize("query", ["q=%00", "stand=niets", "p=999", "language__exact=%00", "id__exact=x"])
def test_garbage_in_an_address_does_no_harm(viewer: Client, knowledge: Document, query: str) -> None:
    assert viewer.get(f"{DOCUMENTS}?{query}", follow=True).status_code == 200


def test_a_guideline_is_read_with_its_chunks_in_order_and_escaped(viewer: Client, knowledge: Document) -> None:
    page = text_of(viewer.get(page_of(knowledge)))
    assert page.index("inleiding") < page.index("Zet een ladder vast") < page.index("Controleer het harnas")
    assert "<script>alert(1)" not in page
    assert 'name="_save"' not in page


def test_text_of_documents_is_never_markup(viewer: Client) -> None:
    document = Document.objects.create(origin="upload/x.txt", title="<b>x</b>", source="<i>y", content_hash="x")
    Chunk.objects.create(
        document=document, position=0, section="<u>kop", text="<img src=x onerror=y>", content_hash="x"
    )
    for address in (DOCUMENTS, page_of(document)):
        page = text_of(viewer.get(address))
        assert not re.search("<b>x|<i>y|<u>kop|<img src=x", page)


def test_many_chunks_come_in_pages(viewer: Client, knowledge: Document) -> None:
    Chunk.objects.bulk_create(
        Chunk(document=knowledge, position=number, text=f"fragment-{number}.", content_hash=str(number))
        for number in range(3, 250)
    )
    assert "fragment-99." in text_of(viewer.get(page_of(knowledge)))
    assert "fragment-100." not in text_of(viewer.get(page_of(knowledge)))
    assert "fragment-249." in text_of(viewer.get(page_of(knowledge), {"p": "3"}))


def test_the_page_tells_of_chunks_that_were_kept_for_old_answers(viewer: Client, knowledge: Document) -> None:
    Chunk.objects.filter(section="Harnas").update(retired_at="2025-01-01T00:00Z")
    page = text_of(viewer.get(page_of(knowledge)))
    assert "is er 1 vervallen fragment," in page
    assert "Controleer het harnas" not in page


def test_products_are_filtered_and_searched(viewer: Client, knowledge: Document) -> None:
    page = text_of(viewer.get(PRODUCTS))
    assert "EUR 1.094,50" in page
    assert listed(viewer, PRODUCTS, category="Gehoor") == {"Oordoppen"}
    assert listed(viewer, PRODUCTS, q="licht") == {"Veiligheidsharnas"}
    assert listed(viewer, PRODUCTS, q="B-1") == {"Oordoppen"}
    assert 'href="https://example.com/a1"' in text_of(viewer.get(page_of(Product.objects.get(sku="A-1"))))


def test_lists_take_as_many_queries_whatever_they_hold(viewer: Client, knowledge: Document) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            viewer.get(DOCUMENTS)
        return len(captured)

    queries()
    before = queries()
    Document.objects.bulk_create(
        Document(origin=f"upload/{number}", title=f"T{number}", content_hash="x") for number in range(50)
    )
    assert queries() == before


# Adding


def test_uploads_are_ingested(editor: Client) -> None:
    page = upload(editor, ("hoogte.md", GUIDELINE), ("dik.pdf", make_pdf([["Draag een helm."]])))
    assert "Richtlijnen: 2 nieuw." in page
    assert set(Document.objects.values_list("origin", flat=True)) == {"upload/hoogte.md", "upload/dik.pdf"}
    assert not Chunk.objects.filter(embedding=None).exists()


def test_an_upload_of_the_same_name_replaces_the_earlier_one(editor: Client) -> None:
    upload(editor, ("hoogte.md", GUIDELINE))
    assert "1 gewijzigd" in upload(editor, ("hoogte.md", GUIDELINE.replace("vast", "stevig vast")))
    assert "1 ongewijzigd" in upload(editor, ("hoogte.md", GUIDELINE.replace("vast", "stevig vast")))
    assert Document.objects.count() == 1


def test_what_is_wrong_with_an_upload_is_told_for_each_file(editor: Client) -> None:
    page = upload(
        editor,
        ("goed.md", GUIDELINE),
        ("kapot.pdf", b"%PDF"),
        ("leeg.md", ""),
        ("p.csv", CATALOGUE),
        ("<b>.md", b"\xff\x00\xfe\xfe\xfe"),
    )
    assert "Richtlijnen: 1 nieuw." in page
    assert "‘kapot.pdf’ is beschadigd" in page
    assert "‘leeg.md’ is leeg." in page
    assert "‘p.csv’ is van een soort die EVI niet leest." in page
    assert "‘&lt;b&gt;.md’ is geen tekst in UTF-8" in page


def test_a_form_without_files_asks_for_them(editor: Client) -> None:
    assert "errorlist" in text_of(editor.post(f"{DOCUMENTS}add/", {}))


def test_a_catalogue_is_uploaded_with_the_products(editor: Client) -> None:
    assert "Producten: 2 nieuw." in upload(editor, ("p.csv", CATALOGUE), to=PRODUCTS)
    page = upload(editor, ("p.csv", CATALOGUE.replace("2.95", "veel")), to=PRODUCTS)
    assert "‘p.csv’ heeft ongeldige regels (line 3: price" in page


def test_an_upload_during_an_ingest_is_refused(editor: Client, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [ingesting.LOCK])
        assert "al iets ingelezen" in upload(editor, ("hoogte.md", GUIDELINE))
    assert not Document.objects.exists()


# Changing


def test_a_guideline_is_retired_and_revived(editor: Client, knowledge: Document) -> None:
    page = run_action(editor, "retire", knowledge)
    assert "1 richtlijn vervallen" in page
    assert "ook niet als de map weer wordt ingelezen" in page
    assert "ingetrokken" in text_of(editor.get(page_of(knowledge)))
    knowledge.refresh_from_db()
    assert knowledge.retired_at
    assert not Chunk.objects.filter(retired_at=None).exists()
    assert "Zet een ladder vast" in text_of(editor.get(page_of(knowledge)))
    assert "1 richtlijn weer actueel" in run_action(editor, "revive", knowledge)
    assert Chunk.objects.filter(retired_at=None).count() == 3


def test_a_product_is_retired_and_revived(editor: Client, knowledge: Document) -> None:
    product = Product.objects.get(sku="A-1")
    assert "1 product vervallen" in run_action(editor, "retire", product)
    assert Product.objects.get(sku="A-1").retired_at
    assert "1 product weer actueel" in run_action(editor, "revive", product)


def test_a_guideline_is_indexed_again(editor: Client, knowledge: Document) -> None:
    Chunk.objects.filter(section="Ladders").delete()
    Chunk.objects.update(embedding=None, embedding_model="")
    assert "1 richtlijn opnieuw geïndexeerd" in run_action(editor, "reindex", knowledge)
    assert Chunk.objects.filter(retired_at=None).exclude(embedding=None).count() == 3


# Who may do what


@pytest.mark.parametrize("address", [DOCUMENTS, PRODUCTS, SEARCH, f"{DOCUMENTS}add/", f"{PRODUCTS}add/"])
def test_without_permission_every_page_is_closed(staff_client: StaffClient, address: str) -> None:
    assert staff_client().get(address).status_code == 403


def test_strangers_are_sent_to_sign_in(client: Client) -> None:
    assert "/login/" in client.get(SEARCH).headers["Location"]


def test_who_may_only_read_cannot_add_or_change(viewer: Client, knowledge: Document) -> None:
    for address in (DOCUMENTS, PRODUCTS):
        assert viewer.post(f"{address}add/", {}).status_code == 403
        page = text_of(viewer.get(address))
        assert "toevoegen" not in page
        assert 'name="action"' not in page
    run_action(viewer, "retire", knowledge)
    assert Document.objects.get().retired_at is None


def test_adding_takes_the_right_to_change_too(staff_client: StaffClient) -> None:
    assert staff_client("add_document").get(f"{DOCUMENTS}add/").status_code == 403


def test_nobody_deletes_or_edits_what_answers_cite(admin_client: Client, knowledge: Document) -> None:
    assert admin_client.post(f"{DOCUMENTS}{knowledge.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.post(page_of(knowledge), {"title": "x"}).status_code == 403
    run_action(admin_client, "delete_selected", knowledge)
    assert Document.objects.get().title == "Werken op hoogte"


def test_forms_from_elsewhere_are_refused(editor: Client) -> None:
    editor.handler.enforce_csrf_checks = True
    assert editor.post(f"{DOCUMENTS}add/", {}).status_code == 403


def test_products_are_not_shown_to_who_may_not_read_them(staff_client: StaffClient, knowledge: Document) -> None:
    page = text_of(staff_client("view_document").get(SEARCH, {"q": "harnas"}))
    assert "Controleer het harnas" in page
    assert "Veiligheidsharnas" not in page


# Trying a query


def test_a_query_shows_hits_with_every_part_of_their_score(viewer: Client, knowledge: Document) -> None:
    page = text_of(viewer.get(SEARCH, {"q": "ladder vastzetten", "language": "nl"}))
    assert page.index("Zet een ladder vast") < page.index("Controleer het harnas")
    for part in ("totaal", "betekenis (cosinus)", "woorden", "gevonden woorden", "plaats 1", "De drempel is"):
        assert part in page
    assert page_of(knowledge) in page


def test_a_query_that_finds_nothing_says_so(viewer: Client) -> None:
    page = text_of(viewer.get(SEARCH, {"q": "recept voor appeltaart"}))
    assert page.count("Niets gevonden.") == 2


@pytest.mark.parametrize("query", [{"q": ""}, {"q": "x" * 501}, {"q": "x", "language": "de"}, {"q": "\0"}])
def test_a_query_that_is_none_is_refused(viewer: Client, query: dict[str, str]) -> None:
    page = text_of(viewer.get(SEARCH, query))
    assert "errorlist" in page
    assert "Niets gevonden" not in page


def test_what_is_asked_is_escaped(viewer: Client, knowledge: Document) -> None:
    assert "<script>alert" not in text_of(viewer.get(SEARCH, {"q": '"><script>alert(1)</script>'}))
