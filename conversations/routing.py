"""The addresses of WebSockets, as urls.py has those of pages."""

from django.urls import path, re_path

from conversations.consumers import ChatConsumer, NowhereConsumer
from conversations.watching import NowConsumer, SessionConsumer

websocket_urlpatterns = [
    path("ws/chat/", ChatConsumer.as_asgi()),
    path("ws/admin/sessions/<uuid:session_id>/", SessionConsumer.as_asgi()),
    path("ws/admin/now/", NowConsumer.as_asgi()),
    re_path("", NowhereConsumer.as_asgi()),
]
