import asyncio
import os
import sys

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from twisted.internet.defer import Deferred

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evi_site.settings")

# It sets Django up, which what is imported below needs.
http = get_asgi_application()

from conversations.consumers import let_go  # noqa: E402
from conversations.live import announcer  # noqa: E402
from conversations.routing import websocket_urlpatterns  # noqa: E402

router = ProtocolTypeRouter({"http": http, "websocket": URLRouter(websocket_urlpatterns)})


if reactor := sys.modules.get("twisted.internet.reactor"):
    # Under daphne: what nobody will come back to is stored before the process ends.
    reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromFuture(asyncio.ensure_future(let_go())))


async def application(scope: dict[str, object], receive: object, send: object) -> None:
    announcer.listen()
    await router(scope, receive, send)
