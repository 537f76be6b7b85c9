from django.contrib.auth.views import LogoutView
from django.urls import path, re_path

from conversations import pages
from conversations.api import chat, facts, handovers, openai, responses, search, sessions, sources, transfer
from conversations.api.telegram import webhook as telegram

urlpatterns = [
    path("", pages.chat, name="home"),
    path("login/", pages.SignIn.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("chat", chat.ChatView.as_view()),
    path("v1/chat/completions", openai.chat_completions),
    path("v1/responses", responses.responses),
    path("v1/responses/<str:response_id>", responses.response),
    path("v1/models", openai.models),
    path("v1/models/<str:model_id>", openai.model),
    re_path(r"^v1(?:/.*)?$", openai.unknown),
    path("api/sessions", sessions.SessionListView.as_view()),
    path("api/sessions/import", transfer.SessionImportView.as_view()),
    path("api/sessions/<str:session_id>", sessions.SessionView.as_view(), name="session"),
    path("api/sessions/<str:session_id>/messages", sessions.SessionMessagesView.as_view()),
    path("api/sessions/<str:session_id>/export", transfer.SessionExportView.as_view()),
    path("api/facts", facts.FactListView.as_view()),
    path("api/facts/<str:fact_id>", facts.FactView.as_view()),
    path("api/sessions/<str:session_id>/handover", handovers.SessionHandoverView.as_view()),
    path("api/handover", handovers.HandoverView.as_view()),
    path("telegram/webhook", telegram.webhook, name="telegram-webhook"),
    path("api/search", search.SearchView.as_view()),
    path("api/sources/<str:source_id>", sources.SourceView.as_view()),
]
