import django.contrib.postgres.functions
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0013_handovers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="CleanupRun",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        db_default=django.contrib.postgres.functions.RandomUUID(),
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "started_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("asked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("expected_sessions", models.IntegerField()),
                ("sessions", models.IntegerField(db_default=0)),
                ("messages", models.IntegerField(db_default=0)),
                ("failed", models.BooleanField(db_default=False)),
            ],
            options={"db_table": "cleanup_runs", "ordering": ["-asked_at"]},
        ),
        migrations.CreateModel(
            name="DailyFigures",
            fields=[
                ("day", models.DateField(primary_key=True, serialize=False, verbose_name="dag")),
                ("sessions", models.IntegerField(verbose_name="gesprekken")),
                ("persons", models.IntegerField(verbose_name="personen")),
                ("messages", models.IntegerField(verbose_name="berichten")),
                ("answers", models.IntegerField(verbose_name="antwoorden")),
                ("interrupted", models.IntegerField(verbose_name="afgebroken")),
                ("failed", models.IntegerField(verbose_name="mislukt")),
                ("answer_p50", models.FloatField(null=True, verbose_name="antwoordtijd p50")),
                ("answer_p95", models.FloatField(null=True, verbose_name="antwoordtijd p95")),
                ("tokens", models.JSONField(default=dict, verbose_name="tokens per model")),
                (
                    "counted_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="geteld"),
                ),
            ],
            options={
                "verbose_name": "dagcijfer",
                "verbose_name_plural": "dagcijfers",
                "db_table": "daily_figures",
                "ordering": ["day"],
            },
        ),
        migrations.AlterModelOptions(
            name="session",
            options={
                "ordering": ["-last_accessed", "-id"],
                "permissions": [
                    ("read_hidden_contents", "Mag gesprekken lezen waar EVI_ADMIN_HIDE_CONTENT ze verbergt"),
                    ("forget_person", "Mag een persoon vergeten"),
                ],
                "verbose_name": "gesprek",
                "verbose_name_plural": "gesprekken",
            },
        ),
    ]
