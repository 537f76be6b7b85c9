"""How often something may be done, counted for each process in windows of a minute."""

from django.core.cache import cache
from django.utils import timezone

from conversations.errors import TooManyRequestsError


def count(name: str, *, most: int) -> None:
    """Once more; refused when that is too often."""
    now = timezone.now()
    window = f"{name}:{now:%Y%m%d%H%M}"
    cache.add(window, 0, timeout=60)
    if cache.incr(window) > most:
        raise TooManyRequestsError(retry_after=60 - now.second)
