"""Everything EVI reads from the environment, typed; `settings.EVI` is where the rest of EVI finds it."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

BASE_DIR = Path(__file__).resolve().parent.parent
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

# Made on the first start in development; in production each comes from the environment or a secrets folder.
FIRST_RUN_SECRETS: dict[str, Callable[[], str]] = {
    "EVI_SECRET_KEY": lambda: secrets.token_urlsafe(64),
    "EVI_ADMIN_PASSWORD": lambda: secrets.token_urlsafe(12),
    "EVI_API_KEY": lambda: f"evi_{secrets.token_hex(32)}",
}
# What a message never repeats.
SECRET_VARIABLES = {
    *FIRST_RUN_SECRETS,
    "DATABASE_URL",
    "REDIS_URL",
    "EVI_MODEL_API_KEY",
    "EVI_EMBEDDING_API_KEY",
    "EVI_OPENWEBUI_JWT_SECRET",
    "EVI_TELEGRAM_TOKEN",
    "EVI_TELEGRAM_SECRET",
}


class Environment(BaseSettings):
    """One field for each variable; `.env.example` explains them to people."""

    model_config = SettingsConfigDict(
        env_prefix="EVI_", env_file=BASE_DIR / ".env", extra="ignore", env_ignore_empty=True, frozen=True
    )

    env: Literal["development", "production"] = "development"
    debug: bool = False
    secret_key: str = ""
    allowed_hosts: Annotated[list[str], NoDecode] = LOOPBACK_HOSTS
    https: bool = True
    port: int = Field(8000, ge=1, le=65535)
    data_dir: Path = BASE_DIR / ".data"
    secrets_dir: Path | None = None
    database_url: str = Field("", validation_alias="DATABASE_URL")
    redis_url: str = Field("", validation_alias="REDIS_URL")
    pool_size: int = Field(20, ge=1, le=500)
    worker_processes: int = Field(2, ge=1, le=64)
    admin_password: str = ""
    api_key: str = ""
    time_zone: str = "Europe/Amsterdam"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    model: str = "offline"
    model_base_url: str = ""
    model_api_key: str = ""
    model_fallbacks: Annotated[list[str], NoDecode] = []
    model_sees_images: bool = False
    model_timeout: float = Field(60, gt=0, le=3600)
    embedding_model: str = "bundled"
    embedding_base_url: str = ""
    embedding_api_key: str = ""
    sample: bool | None = None
    telemetry_url: str = ""
    telemetry_content: bool = False
    unknown_session: Literal["", "create", "reject"] = ""
    context_messages: int = Field(10, ge=0, le=1000)
    context_tokens: int = Field(8000, ge=100)
    context_summary: bool = False
    idle_minutes: int = Field(30, ge=0, le=525_600)
    max_body_bytes: int = Field(20_000_000, ge=1000)
    max_message_chars: int = Field(32_000, ge=1)
    max_messages: int = Field(1000, ge=1)
    rate_limit: int = Field(120, ge=1)
    reconnect_seconds: float = Field(30, ge=0, le=3600)
    openwebui_jwt_secret: str = ""
    telegram_token: str = ""
    telegram_secret: str = ""
    telegram_chats: Annotated[list[str], NoDecode] = []
    telegram_client: str = "default"
    telegram_api_url: str = "https://api.telegram.org"
    temporary_hours: int = Field(24, ge=1, le=8760)
    retention_days: int = Field(30, ge=0, le=36500)
    admin_hide_content: bool = False

    @field_validator("allowed_hosts", "model_fallbacks", "telegram_chats", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value

    @field_validator("time_zone")
    @classmethod
    def _known_time_zone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError("it must be a time zone such as Europe/Amsterdam")
        return value

    @field_validator("telegram_token")
    @classmethod
    def _as_botfather_gives_it(cls, value: str) -> str:
        if value and not re.fullmatch(r"\d{1,18}:[\w-]+", value, re.ASCII):
            raise ValueError("it must be a token as @BotFather gives it: a number, a colon, and letters")
        return value

    @field_validator("telegram_secret")
    @classmethod
    def _as_telegram_takes_it(cls, value: str) -> str:
        if value and not re.fullmatch(r"[\w-]{16,256}", value, re.ASCII):
            raise ValueError("it must be 16 to 256 letters, digits, _ and -")
        return value

    @field_validator("telegram_chats")
    @classmethod
    def _chat_numbers(cls, value: list[str]) -> list[str]:
        if wrong := [chat for chat in value if not re.fullmatch(r"\*|-?\d{1,18}", chat, re.ASCII)]:
            raise ValueError(f"{wrong[0]!r} is no chat: chats are numbers, separated by commas, or * for everybody")
        return value

    @field_validator("telegram_api_url")
    @classmethod
    def _address(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in {"http", "https"} or not url.hostname or set("{}?#") & set(value):
            raise ValueError("it must be an address such as https://api.telegram.org")
        return value.rstrip("/")

    @field_validator("data_dir", "secrets_dir")
    @classmethod
    def _from_the_project(cls, value: Path | None) -> Path | None:
        return value and project_path(value)

    @field_validator("database_url")
    @classmethod
    def _only_postgresql(cls, value: str) -> str:
        if value:
            url = urlsplit(value)
            if url.scheme not in {"postgres", "postgresql"}:
                raise ValueError("it must start with postgresql://, because EVI runs on PostgreSQL only")
            try:
                names_database = url.port != 0 and bool(url.path.strip("/"))
            except ValueError:
                # Python's own words would repeat a piece of the password.
                raise ValueError("the port is no number; write / : @ # in a password as %2F %3A %40 %23") from None
            if not names_database:
                raise ValueError("it must name a database: postgresql://USER:PASSWORD@HOST:5432/NAME")
        return value

    @field_validator("redis_url")
    @classmethod
    def _only_redis(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("it must start with redis://, rediss:// or unix://")
        return value

    @model_validator(mode="after")
    def _safe_in_production(self) -> "Environment":
        if self.env == "production" and (problems := list(self._production_problems())):
            raise ValueError("\n".join(problems))
        return self

    def _production_problems(self) -> Iterator[str]:
        if len(self.secret_key) < 50 or len(set(self.secret_key)) < 10 or "insecure" in self.secret_key:
            make = "python3 -c 'import secrets; print(secrets.token_urlsafe(64))'"
            yield f"EVI_SECRET_KEY: set it to at least 50 random characters, such as those of: {make}"
        if set(self.allowed_hosts) <= set(LOOPBACK_HOSTS):
            yield "EVI_ALLOWED_HOSTS: name the hosts people use to reach EVI, separated by commas"
        if any(host.startswith(("*", ".")) for host in self.allowed_hosts):
            yield "EVI_ALLOWED_HOSTS: name each host in full; a wildcard lets anyone choose the host"
        if any(re.search(r"[/\s]|:\d+$", host) for host in self.allowed_hosts):
            yield "EVI_ALLOWED_HOSTS: names only, without https://, port or spaces"
        if self.debug:
            yield "EVI_DEBUG: switch it off; it shows the program's insides to visitors"
        if not self.database_url:
            yield "DATABASE_URL: point it at your PostgreSQL; the embedded database is for development"
        elif (password := urlsplit(self.database_url).password) and is_weak(password):
            yield "DATABASE_URL: the database password is weak; use at least 12 characters that nobody can guess"
        if self.admin_password and is_weak(self.admin_password):
            yield "EVI_ADMIN_PASSWORD: use at least 12 characters that nobody can guess"
        if self.api_key and len(self.api_key) < 32:
            yield "EVI_API_KEY: use at least 32 random characters"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Adds the secrets folder: a file named like a variable holds its value (Docker's secrets, the first run's)."""
        said = {**dotenv_settings(), **env_settings()}
        folder = said.get("secrets_dir")
        if said.get("env", "development") == "development":
            folder = folder or Path(said.get("data_dir") or cls.model_fields["data_dir"].default, "secrets")
            make_secrets(project_path(folder))
        # Production reads a folder only where it is told to, and not one that development left behind.
        files = (SecretsSettingsSource(settings_cls, secrets_dir=project_path(folder)),) if folder else ()
        return (init_settings, env_settings, dotenv_settings, *files)


def project_path(path: str | Path) -> Path:
    """A relative folder means the same one, whatever folder the command was started in."""
    return (BASE_DIR / Path(path).expanduser()).resolve()


def is_weak(password: str) -> bool:
    return len(password) < 12 or len(set(password)) < 6


def make_secrets(folder: Path, makers: Mapping[str, Callable[[], str]] = FIRST_RUN_SECRETS) -> None:
    """Write each secret that is not there yet, readable by this user alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, make in makers.items():
        path = folder / name
        if path.exists():
            continue
        # Link, do not open: of two processes starting at once, both then read the first one's whole secret.
        draft = folder / f".{name}.{secrets.token_hex(8)}"
        draft.touch(mode=0o600)
        draft.write_text(make())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        finally:
            draft.unlink()


def read_environment() -> Environment:
    """The environment, or an end to the process with a list of what to put right."""
    try:
        return Environment()
    except ValidationError as error:
        lines = [line for problem in error.errors() for line in explain(problem).splitlines()]
        raise SystemExit("EVI cannot start. Put this right:\n" + "\n".join(f"  - {line}" for line in lines)) from None
    except OSError as error:
        raise SystemExit(f"EVI cannot use its data folder: {error.strerror} ({error.filename}).") from None


def explain(problem: Any) -> str:
    if not problem["loc"]:
        return str(problem["ctx"]["error"])
    name = str(problem["loc"][0])
    variable = name if name.isupper() else f"EVI_{name.upper()}"
    shown = "" if variable in SECRET_VARIABLES else f" (it is {problem['input']!r})"
    return f"{variable}: {problem['msg'].removeprefix('Value error, ')}{shown}"
