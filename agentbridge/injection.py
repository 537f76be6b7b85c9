"""Text that speaks to the assistant instead of to people, wherever it comes from."""

import logging
import re

from agentbridge.chunks import sentences

logger = logging.getLogger(__name__)

# A model is not given it at all, because no instruction makes every model proof against it.
SPEAKS_TO_THE_MODEL = re.compile(
    r"\b(negeer|vergeet|ignore|disregard|forget)\b.{0,20}\b(je|jouw|uw|alle|vorige|eerdere|your|all|any|previous|prior|the)\b"
    r".{0,20}\b(instructies|instructions|regels|rules|prompts?|opdrachten)\b"
    r"|\b(systeem|system)[ -]?prompt\b|\b(je|u) bent (nu|voortaan) een (ai|chatbot|assistent|taalmodel|model)\b"
    r"|\byou are now an? (ai|assistant|chatbot|model)\b|\bas an? (ai|language model)\b|\bals (ai|taalmodel)\b"
    r"|<\/?(system|assistant|user)>",
    re.IGNORECASE,
)


def safe(text: str) -> str:
    """The text without the sentences that try to tell the assistant what to do."""
    if not SPEAKS_TO_THE_MODEL.search(text):
        return text
    # What people said is no more for the log than for telemetry.
    logger.warning("Left out what speaks to the assistant from a text of %d characters", len(text))
    kept = (
        " ".join(sentence for sentence in sentences(line) if not SPEAKS_TO_THE_MODEL.search(sentence))
        for line in text.split("\n")
    )
    return "\n".join(kept)
