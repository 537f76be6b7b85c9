"""The admin of what EVI knows, where staff read guidelines and products, add them and see why something is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.core.paginator import Paginator
from django.db import models
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from agentbridge import catalogues, readers, retrieval, searchable
from agentbridge.embeddings import EmbeddingAwayError, current_embedder
from agentbridge.ingest import IngestBusyError, IngestReport, ingest_uploads, reindex
from agentbridge.models import Chunk, Document, Language, Product, Threshold
from agentbridge.shelving import Verdict, retire, revive
from agentbridge.staff import StaffAdmin, counted

CHUNKS_ON_A_PAGE = 100
SHOWN_HITS = 10
BUSY = "Er wordt op dit moment al iets ingelezen. Probeer het zo nog eens."
UNEMBEDDED = (
    "Het is opgeslagen en op woorden te vinden, maar het model voor de betekenis antwoordt niet. Later: reembed."
)


class LiveFilter(admin.SimpleListFilter):
    title = "stand"
    parameter_name = "stand"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("live", "actueel"), ("retired", "vervallen")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "live":
                return queryset.filter(retired_at=None)
            case "retired":
                return queryset.exclude(retired_at=None)
        return queryset


class ManyFilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        # Each is cleaned as one, but an empty one is told of with the other failures.
        files = data if isinstance(data, list) else [data] if data else []
        return [super(ManyFilesField, self).clean(file, initial) for file in files or [None]]


class UploadForm(forms.Form):
    def __init__(self, *args: Any, formats: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["uploads"] = ManyFilesField(
            label="Bestanden",
            allow_empty_file=True,
            widget=ManyFilesInput(attrs={"accept": ",".join(formats)}),
        )


class KnowledgeAdmin(StaffAdmin):
    """Rows that come from files: they are read here, and changed by taking in the file again."""

    formats: ClassVar[tuple[str, ...]]
    upload_help: ClassVar[str]
    actions: tuple[str, ...] = ("retire", "revive")

    def has_add_permission(self, request: HttpRequest) -> bool:
        # A file may take the place of an earlier one.
        return super().has_add_permission(request) and self.has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        # Old answers cite it.
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        # For the actions. What a single page would change, the next ingest would change back.
        return obj is None and super().has_change_permission(request)

    @admin.display(description="stand", ordering="retired_at")
    def state(self, row: Any) -> str:
        return "ingetrokken" if row.withdrawn else "vervallen" if row.retired_at else "actueel"

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Take in files, with the function that the command has."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        sent = (request.POST, request.FILES) if request.method == "POST" else ()
        form = UploadForm(*sent, formats=self.formats)
        if form.is_valid():
            try:
                report = ingest_uploads(form.cleaned_data["uploads"], formats=self.formats)
            except IngestBusyError:
                form.add_error("uploads", BUSY)
            except EmbeddingAwayError:
                form.add_error("uploads", UNEMBEDDED)
            else:
                self.tell(request, report)
                if not report.failures:
                    return redirect(self.list_address())
                return redirect(request.path)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{self.opts.verbose_name_plural} toevoegen".capitalize(),
            "opts": self.opts,
            "form": form,
            "help": self.upload_help,
            "list_address": self.list_address(),
        }
        return TemplateResponse(request, "admin/agentbridge/upload.html", context)

    def tell(self, request: HttpRequest, report: IngestReport) -> None:
        for model, counts in ((Document, report.documents), (Product, report.products)):
            said = [f"{counts[verdict]} {verdict.label}" for verdict in Verdict if counts[verdict]]
            if said:
                name = model._meta.verbose_name_plural
                self.message_user(request, f"{name}: {', '.join(said)}.".capitalize(), messages.SUCCESS)
        for failure in report.failures:
            name = failure.origin.partition("/")[2]
            detail = f" ({failure.detail})" if failure.detail else ""
            self.message_user(request, f"‘{name}’ {failure.problem.label}{detail}.", messages.ERROR)

    def list_address(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    @admin.action(permissions=["change"], description="Selectie laten vervallen")
    def retire(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        retired = counted(queryset.model, retire(queryset, by_hand=True))
        text = f"{retired} vervallen: EVI gebruikt dit niet meer, ook niet als de map weer wordt ingelezen."
        self.message_user(request, text, messages.SUCCESS)

    @admin.action(permissions=["change"], description="Selectie weer actueel maken")
    def revive(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        revived = revive(queryset)
        # What was retired was passed over when the model or the text changed.
        searchable.make_searchable()
        self.message_user(request, f"{counted(queryset.model, revived)} weer actueel.", messages.SUCCESS)


@admin.register(Document)
class DocumentAdmin(KnowledgeAdmin):
    list_display = ("name", "norm", "version", "valid_from", "language", "chunk_count", "state")
    list_filter = (LiveFilter, "language", ("source", admin.AllValuesFieldListFilter))
    search_fields = ("title", "norm", "source", "version", "origin", "subjects")
    fields = (
        ("title", "language"),
        ("source", "norm"),
        ("version", "valid_from"),
        "subject_list",
        "url",
        "origin",
        ("ingested_at", "state"),
    )
    readonly_fields = ("subject_list", "origin", "ingested_at", "state")
    actions = ("reindex", "retire", "revive")
    formats = tuple(readers.GUIDELINES)
    upload_help = (
        "Richtlijnen in Markdown, tekst, HTML, Word (.docx) of PDF, elk tot 50 MB. Een bestand met dezelfde naam "
        "vervangt wat eerder zo werd geüpload."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        live = Count("chunks", filter=Q(chunks__retired_at=None))
        documents: QuerySet[Document] = super().get_queryset(request)
        return documents.defer("content").annotate(live_chunks=live)

    @admin.display(description="titel", ordering="title")
    def name(self, document: Document) -> SafeString:
        source = Truncator(document.source).chars(80)
        return format_html('{}<small class="evi-sub">{}</small>', Truncator(document.title).chars(80), source)

    @admin.display(description="fragmenten", ordering="live_chunks")
    def chunk_count(self, document: Any) -> int:
        return int(document.live_chunks)

    @admin.display(description="onderwerpen")
    def subject_list(self, document: Document) -> str:
        return ", ".join(document.subjects) or "–"

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        document: Document = context["original"]
        chunks = document.chunks.filter(retired_at=document.retired_at).order_by("position")
        page = Paginator(chunks.defer("embedding", "terms"), CHUNKS_ON_A_PAGE).get_page(request.GET.get("p"))
        context |= {"page": page, "older_chunks": document.chunks.count() - page.paginator.count}
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.action(permissions=["change"], description="Selectie opnieuw indexeren")
    def reindex(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        number = queryset.count()
        try:
            reindex(Document.objects.filter(pk__in=queryset.values("pk")))
        except IngestBusyError:
            self.message_user(request, BUSY, messages.ERROR)
        except EmbeddingAwayError:
            self.message_user(request, UNEMBEDDED, messages.ERROR)
        else:
            self.message_user(request, f"{counted(Document, number)} opnieuw geïndexeerd.", messages.SUCCESS)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.search_view)
        return [path("search/", view, name="agentbridge_document_search"), *super().get_urls()]

    def search_view(self, request: HttpRequest) -> HttpResponse:
        """Ask what EVI would find, and see why."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = QueryForm(request.GET if "q" in request.GET else None)
        results = []
        if form.is_valid():
            query, language = form.cleaned_data["q"], form.cleaned_data["language"] or None
            results.append(guidelines_for(query, language=language))
            if self.admin_site.get_model_admin(Product).has_view_permission(request):
                results.append(products_for(query))
        context = {
            **self.admin_site.each_context(request),
            "title": "Zoekvraag proberen",
            "form": form,
            "results": results,
            "embedder": current_embedder().name,
        }
        return TemplateResponse(request, "admin/agentbridge/search.html", context)


@admin.register(Product)
class ProductAdmin(KnowledgeAdmin):
    list_display = ("name", "sku", "category", "norm", "price_with_currency", "state")
    list_filter = (LiveFilter, "category")
    search_fields = ("name", "sku", "norm", "description", "subjects")
    fields = (
        "name",
        "sku",
        "category",
        "norm",
        "description",
        "price_with_currency",
        "subject_list",
        "link",
        "origin",
        "state",
    )
    readonly_fields = ("price_with_currency", "subject_list", "link", "origin", "state")
    formats = tuple(sorted(catalogues.FORMATS))
    upload_help = (
        "Een catalogus als CSV of JSON, tot 50 MB, met per product: sku, name, category, norm, description, url, "
        "price, currency en subjects (gescheiden door puntkomma’s). Een bestand met dezelfde naam vervangt wat eerder "
        "zo werd geüpload; producten die er niet meer in staan, vervallen."
    )

    @admin.display(description="prijs", ordering="price")
    def price_with_currency(self, product: Product) -> str:
        return (
            "–"
            if product.price is None
            else f"{product.currency} {number_format(product.price, 2, force_grouping=True)}"
        )

    @admin.display(description="onderwerpen")
    def subject_list(self, product: Product) -> str:
        return ", ".join(product.subjects) or "–"

    @admin.display(description="adres")
    def link(self, product: Product) -> SafeString | str:
        return format_html('<a href="{0}" rel="noreferrer">{0}</a>', product.url) if product.url else "–"


class QueryForm(forms.Form):
    q = forms.CharField(
        label="Vraag", max_length=500, widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True})
    )
    language = forms.ChoiceField(
        label="Taal die voorgaat", required=False, choices=[("", "geen voorkeur"), *Language.choices]
    )


@dataclass(frozen=True)
class Results:
    """What was found, also what scored too low to be used in an answer."""

    name: str
    hits: list[tuple[Any, str, bool]]
    threshold: float

    @property
    def nothing_found(self) -> bool:
        return not any(used for _, _, used in self.hits)


def guidelines_for(query: str, *, language: str | None) -> Results:
    used = {hit.chunk_id for hit in retrieval.search_guidelines(query, language=language)}
    hits = [
        (hit, reverse("admin:agentbridge_document_change", args=[hit.document_id]), hit.chunk_id in used)
        for hit in retrieval.search_guidelines(query, language=language, limit=SHOWN_HITS, min_score=-1)
    ]
    return Results("Richtlijnen", hits, threshold_of(Chunk))


def products_for(query: str) -> Results:
    used = {hit.product_id for hit in retrieval.search_products(query)}
    hits = [
        (hit, reverse("admin:agentbridge_product_change", args=[hit.product_id]), hit.product_id in used)
        for hit in retrieval.search_products(query, limit=SHOWN_HITS, min_score=-1)
    ]
    return Results("Producten", hits, threshold_of(Product))


def threshold_of(model: type[Chunk] | type[Product]) -> float:
    measured = Threshold.objects.filter(searched=model._meta.db_table, embedding_model=current_embedder().name)
    return measured.values_list("score", flat=True).first() or retrieval.UNMEASURED
