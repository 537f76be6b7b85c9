"""From a name in the settings to a model that answers."""

from functools import cache

from django.conf import settings
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agentbridge import echo, offline


def configured_model() -> Model:
    """The model of the settings."""
    evi = settings.EVI
    return model_for(
        evi.model, base_url=evi.model_base_url, api_key=evi.model_api_key, fallbacks=tuple(evi.model_fallbacks)
    )


@cache
def model_for(name: str, *, base_url: str = "", api_key: str = "", fallbacks: tuple[str, ...] = ()) -> Model:
    """The model called `name`, at an OpenAI-compatible `base_url` if there is one; `fallbacks` take over in turn."""
    if base_url:
        first: Model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url, api_key=api_key or "none"))
    else:
        first = _known(name)
    return FallbackModel(first, *map(_known, fallbacks)) if fallbacks else first


def _known(name: str) -> Model:
    match name:
        case offline.NAME:
            return offline.offline_model()
        case echo.NAME:
            return echo.echo_model()
    return infer_model(name)
