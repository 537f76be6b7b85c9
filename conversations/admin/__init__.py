"""The admin, where staff read, pin and delete conversations, clean up, and see how EVI is doing."""

from conversations.admin import audit, keys, memory, messages, sessions

__all__ = ["audit", "keys", "memory", "messages", "sessions"]
