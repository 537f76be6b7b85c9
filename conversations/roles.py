"""Who of the staff may see what."""

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User


def may_read_contents(user: User | AbstractBaseUser | AnonymousUser) -> bool:
    """Whether this member of staff may read what people said."""
    if not (
        isinstance(user, User) and user.is_active and user.is_staff and user.has_perm("conversations.view_message")
    ):
        return False
    return not settings.EVI.admin_hide_content or user.has_perm("conversations.read_hidden_contents")
