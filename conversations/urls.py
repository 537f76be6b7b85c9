from django.contrib.auth.views import LogoutView
from django.urls import path

from conversations import pages
from conversations.api import chat, openai, responses, sessions, sources

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
    path("v1", openai.unknown),
    path("v1/<path:path>", openai.unknown),
    path("api/sessions", sessions.SessionListView.as_view()),
    path("api/sessions/import", sessions.SessionImportView.as_view()),
    path("api/sessions/<str:session_id>", sessions.SessionView.as_view(), name="session"),
    path("api/sessions/<str:session_id>/messages", sessions.SessionMessagesView.as_view()),
    path("api/sessions/<str:session_id>/export", sessions.SessionExportView.as_view()),
    path("api/sources/<str:source_id>", sources.SourceView.as_view()),
]
