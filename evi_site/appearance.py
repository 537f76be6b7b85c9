"""The admin's name, colours and menu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse, reverse_lazy

# Tailwind's slate and teal, and amber for what asks for attention.
SLATE = {
    "50": "#f8fafc",
    "100": "#f1f5f9",
    "200": "#e2e8f0",
    "300": "#cbd5e1",
    "400": "#94a3b8",
    "500": "#64748b",
    "600": "#475569",
    "700": "#334155",
    "800": "#1e293b",
    "900": "#0f172a",
    "950": "#020617",
}
TEAL = {
    "50": "#f0fdfa",
    "100": "#ccfbf1",
    "200": "#99f6e4",
    "300": "#5eead4",
    "400": "#2dd4bf",
    "500": "#14b8a6",
    "600": "#0f766e",
    "700": "#115e59",
    "800": "#134e4a",
    "900": "#0c3d3a",
    "950": "#042f2e",
}


def _may(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


# Below the address of a list, and yet in the menu themselves.
PAGES_OF_THEIR_OWN = ("cleanup/", "search/")


def _is_open(page: str) -> Callable[[HttpRequest], bool]:
    def is_open(request: HttpRequest) -> bool:
        address = reverse(f"admin:{page}")
        rest = request.path.removeprefix(address)
        return request.path.startswith(address) and not rest.startswith(PAGES_OF_THEIR_OWN)

    return is_open


def _item(title: str, icon: str, page: str, permission: str) -> dict[str, Any]:
    link = reverse_lazy(f"admin:{page}")
    return {"title": title, "icon": icon, "link": link, "permission": _may(permission), "active": _is_open(page)}


def _list(title: str, icon: str, model: str) -> dict[str, Any]:
    app, name = model.split(".")
    return _item(title, icon, f"{app}_{name}_changelist", f"{app}.view_{name}")


def _contents(title: str, icon: str, model: str) -> dict[str, Any]:
    """A list of what people said, for who may read that where it is hidden."""
    listed = _list(title, icon, model)
    return listed | {"permission": lambda request: listed["permission"](request) and _may_read(request)}


def _may_read(request: HttpRequest) -> bool:
    # The settings, which hold this menu, are there before any model is.
    from conversations.roles import may_read_contents

    return may_read_contents(request.user)


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "EVI-beheer",
    "SITE_HEADER": "EVI-beheer",
    "SITE_SUBHEADER": "Veilig en gezond werken",
    "SITE_URL": "/",
    "SITE_ICON": lambda request: static("conversations/evi.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("conversations/evi.svg")},
    ],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "8px",
    "COLORS": {
        "base": SLATE,
        "primary": TEAL,
        "font": {
            "subtle-light": "var(--color-base-600)",
            "subtle-dark": "var(--color-base-300)",
            "default-light": "var(--color-base-700)",
            "default-dark": "var(--color-base-200)",
            "important-light": "var(--color-base-900)",
            "important-dark": "var(--color-base-50)",
        },
    },
    "STYLES": [lambda request: static("evi_site/admin.css")],
    "SCRIPTS": [lambda request: static("evi_site/admin.js")],
    "DASHBOARD_CALLBACK": "conversations.admin.dashboard.dashboard",
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "items": [
                    {"title": "Overzicht", "icon": "monitoring", "link": reverse_lazy("admin:index")},
                ],
            },
            {
                "title": "Gesprekken",
                "separator": True,
                "items": [
                    _list("Gesprekken", "forum", "conversations.session"),
                    _contents("Berichten", "chat", "conversations.message"),
                    _item("Opschonen", "auto_delete", "conversations_session_cleanup", "conversations.delete_session"),
                ],
            },
            {
                "title": "Geheugen",
                "separator": True,
                "items": [
                    _contents("Feiten", "lightbulb", "conversations.fact"),
                    _contents("Samenvattingen", "summarize", "conversations.summary"),
                ],
            },
            {
                "title": "Kennis",
                "separator": True,
                "items": [
                    _list("Richtlijnen", "menu_book", "agentbridge.document"),
                    _list("Producten", "construction", "agentbridge.product"),
                    _item("Zoekvraag proberen", "search", "agentbridge_document_search", "agentbridge.view_document"),
                ],
            },
            {
                "title": "Techniek",
                "separator": True,
                "items": [
                    _list("Taakschema’s", "schedule", "django_q.schedule"),
                    _list("Gelukte taken", "task_alt", "django_q.success"),
                    _list("Mislukte taken", "error", "django_q.failure"),
                    _list("Wachtrij", "hourglass_empty", "django_q.ormq"),
                ],
            },
            {
                "title": "Toegang",
                "separator": True,
                "items": [
                    _list("API-sleutels", "key", "conversations.apikey"),
                    _list("Gebruikers", "person", "auth.user"),
                    _list("Groepen", "group", "auth.group"),
                    _list("Controlespoor", "policy", "conversations.auditentry"),
                ],
            },
        ],
    },
}
