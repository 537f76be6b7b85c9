"""What the log does without."""

import logging

from django.core.exceptions import RequestAborted


class InOneLine(logging.Filter):
    """Without its traceback: anybody can ask by a wrong host name, and would fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True


class NoGoodbyes(logging.Filter):
    """Not that clients were gone when the server stopped."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        return not (kind and issubclass(kind, RequestAborted))
