"""Images that come with messages: kept once in a session, referred to by the messages they came with."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from agentbridge.said import Image
from conversations.models import Attachment, Message


def references(images: Iterable[Image]) -> dict[str, Any]:
    """What a message's metadata says of its images."""
    attached = [
        {"digest": _digest(image), "type": image.media_type, "size": len(image.content), "name": image.name}
        for image in images
    ]
    return {"attachments": attached} if attached else {}


def store(images: Sequence[Image], session_id: UUID) -> dict[str, Any]:
    """Keep the images that the session does not have yet; what the message says of them."""
    if not images:
        return {}
    Attachment.objects.bulk_create(
        (
            Attachment(
                session_id=session_id,
                digest=_digest(image),
                media_type=image.media_type,
                name=image.name,
                size=len(image.content),
                content=image.content,
            )
            for image in images
        ),
        ignore_conflicts=True,
    )
    return references(images)


def images_of(messages: Sequence[Message]) -> dict[UUID, tuple[Image, ...]]:
    """The images that came with these messages of one session, by message."""
    wanted = {
        message.id: [str(each["digest"]) for each in attached if isinstance(each, dict) and "digest" in each]
        for message in messages
        if isinstance(attached := message.details.get("attachments"), list)
    }
    if not wanted:
        return {}
    digests = {digest for each in wanted.values() for digest in each}
    kept = {
        row.digest: Image(row.media_type, bytes(row.content), row.name)
        for row in Attachment.objects.filter(session_id=messages[0].session_id, digest__in=digests)
    }
    return {message_id: tuple(kept[digest] for digest in each if digest in kept) for message_id, each in wanted.items()}


def _digest(image: Image) -> str:
    return hashlib.sha256(image.content).hexdigest()
