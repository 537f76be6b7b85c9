"""Django's settings. What differs between machines comes from the environment, through `EVI`."""

import dj_database_url

from evi_site.appearance import UNFOLD as UNFOLD
from evi_site.environment import BASE_DIR, LOOPBACK_HOSTS, read_environment

EVI = read_environment()
PRODUCTION = EVI.env == "production"

SECRET_KEY = EVI.secret_key
DEBUG = EVI.debug
# Loopback always: health checks ask from the machine itself.
ALLOWED_HOSTS = [*EVI.allowed_hosts, *LOOPBACK_HOSTS]
ROOT_URLCONF = "evi_site.urls"
ASGI_APPLICATION = "evi_site.asgi.application"

# Without daphne's own app: all it adds is a `runserver`, for which every command would take half a second longer.
INSTALLED_APPS = [
    # Their templates come before Django's own.
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "evi_site.apps.EviAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_q",
    "agentbridge",
    "conversations",
    # Last: it gives what others registered in the admin EVI's style.
    "evi_site.apps.EviSiteConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # What EVI changes of Unfold's own templates comes before them.
        "DIRS": [BASE_DIR / "evi_site" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The engine adds two things to Django's own: the embedded server where there is no DATABASE_URL, and a
# pool that survives the worker's forks.
DATABASE = dj_database_url.parse(EVI.database_url) if EVI.database_url else {"NAME": "evi"}
DATABASES = {
    "default": {
        **DATABASE,
        "ENGINE": "evi_site.postgres",
        "CONN_MAX_AGE": 0,
        # A connection that died with its server is replaced before anyone notices.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **DATABASE.get("OPTIONS", {}),
            "pool": {"min_size": 0, "max_size": EVI.pool_size, "timeout": 10},
            # Lets the server keep a statement's plan where agentbridge asks for it; Django's own cursors never do.
            "prepare_threshold": 5,
        },
    }
}
# How web processes tell each other what happens.
CHANNEL_LAYERS = {
    "default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [EVI.redis_url]}}
    if EVI.redis_url
    else {"BACKEND": "evi_site.postgres.layer.PostgresLayer"}
}
# Extra settings for the embedded server; the tests trade durability for speed with them.
EVI_CLUSTER_OPTIONS: tuple[str, ...] = ()
# Names of indexes over 30 characters: Oracle's limit, not PostgreSQL's.
SILENCED_SYSTEM_CHECKS = ["models.E034"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = LOGOUT_REDIRECT_URL = "home"

# What is read of a body before it is refused.
DATA_UPLOAD_MAX_MEMORY_SIZE = EVI.max_body_bytes

LANGUAGE_CODE = "nl"
TIME_ZONE = EVI.time_zone
USE_TZ = True
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "static"
# Served from where they lie, unless collectstatic has collected them, as the image does when it is built.
SERVESTATIC_USE_FINDERS = not STATIC_ROOT.is_dir()
SERVESTATIC_USE_STATIC_ROOT = STATIC_ROOT.is_dir()
SERVESTATIC_AUTOREFRESH = False

REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
SPECTACULAR_SETTINGS = {
    "TITLE": "EVI",
    "DESCRIPTION": "A Dutch workplace-safety assistant with a memory.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    # The version that speaks pydantic's JSON schema.
    "OAS_VERSION": "3.1.0",
    # Answers and facts have a status, sources and what is found again have a kind.
    "ENUM_NAME_OVERRIDES": {
        "StatusEnum": "conversations.models.Status",
        "FactStatusEnum": "conversations.models.FactStatus",
        "KindEnum": ["guideline", "product"],
        "RecalledKindEnum": "conversations.candidates.KINDS",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "conversations.api.schema.describe_plain_views",
    ],
}

Q_CLUSTER = {
    "name": "evi",
    "orm": "default",
    "workers": EVI.worker_processes,
    "timeout": 3600,
    # Longer than the time-out, or a slow task is handed out a second time while it still runs.
    "retry": 3660,
    "max_attempts": 3,
    "poll": 1,
    # Of each kind, so that what runs every minute does not push out what runs once a day.
    "save_limit": 500,
    "save_limit_per": "func",
    # A process that django-q2 replaces after so many tasks is, to script/server, one that was lost.
    "recycle": 10**9,
    # After a night's downtime one clean-up is enough.
    "catch_up": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": EVI.log_level},
    # Every step of their starting and stopping is of no interest until something is wrong.
    "loggers": {
        **{
            name: {"level": "DEBUG" if EVI.log_level == "DEBUG" else "WARNING"}
            for name in ("daphne", "django-q", "httpx", "httpx2")
        },
        "django.security.DisallowedHost": {"filters": ["in_one_line"]},
        "asyncio": {"filters": ["no_goodbyes"]},
    },
    "filters": {
        "in_one_line": {"()": "evi_site.logs.InOneLine"},
        "no_goodbyes": {"()": "evi_site.logs.NoGoodbyes"},
    },
}

if PRODUCTION:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = EVI.https
    SECURE_HSTS_SECONDS = 31_536_000 if EVI.https else 0
    SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = EVI.https
    # Daphne speaks plain HTTP, so HTTPS always ends at a proxy in front of it.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    # The health checks come from the machine itself, without a proxy.
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
