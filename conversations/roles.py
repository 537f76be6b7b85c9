"""Who of the staff may see what."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User


def may_read_contents(user: User | AbstractBaseUser | AnonymousUser) -> bool:
    """Whether this member of staff may read what people said."""
    return isinstance(user, User) and user.is_active and user.is_staff and user.has_perm("conversations.view_message")
