import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")

# It sets Django up, which what is imported below needs.
http = get_asgi_application()

from agentbridge.warming import warm_up  # noqa: E402
from conversations.api.telegram.webhook import look_for_what_was_left  # noqa: E402
from conversations.farewell import before_the_end  # noqa: E402
from conversations.live import announcer  # noqa: E402
from conversations.routing import websocket_urlpatterns  # noqa: E402
from conversations.turns import Turn  # noqa: E402

router = ProtocolTypeRouter({"http": http, "websocket": URLRouter(websocket_urlpatterns)})

warm_up()


async def application(scope: dict[str, object], receive: object, send: object) -> None:
    announcer.listen()
    before_the_end(Turn.end_all)
    look_for_what_was_left()
    await router(scope, receive, send)
