import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0012_message_embeddings"),
    ]

    operations = [
        migrations.CreateModel(
            name="Handover",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        db_constraint=False,
                        editable=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="handover",
                        serialize=False,
                        to="conversations.session",
                    ),
                ),
                ("digest", models.TextField(editable=False)),
                ("expires_at", models.DateTimeField(editable=False, verbose_name="verloopt")),
            ],
            options={
                "verbose_name": "overdracht",
                "verbose_name_plural": "overdrachten",
                "db_table": "handovers",
                "constraints": [models.UniqueConstraint(fields=("digest",), name="handovers_digest_unique")],
            },
        ),
        migrations.CreateModel(
            name="TelegramUpdate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("bot_id", models.BigIntegerField(editable=False)),
                ("update_id", models.BigIntegerField(editable=False)),
                ("chat_id", models.BigIntegerField(editable=False)),
                ("thread_id", models.BigIntegerField(db_default=0, editable=False)),
                ("message_id", models.BigIntegerField(editable=False, null=True)),
                ("content", models.JSONField(editable=False)),
                ("pieces_sent", models.IntegerField(db_default=0, editable=False)),
                ("attempts", models.IntegerField(db_default=0, editable=False)),
                (
                    "received_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                ("claimed_until", models.DateTimeField(editable=False, null=True)),
                ("done_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "verbose_name": "Telegrambericht",
                "verbose_name_plural": "Telegramberichten",
                "db_table": "telegram_updates",
                "indexes": [
                    models.Index(
                        condition=models.Q(("done_at", None)),
                        fields=["bot_id", "chat_id", "thread_id", "update_id"],
                        name="idx_telegram_updates_waiting",
                    ),
                    models.Index(fields=["chat_id", "message_id"], name="idx_telegram_updates_message"),
                    models.Index(fields=["received_at"], name="idx_telegram_updates_received"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("bot_id", "update_id"), name="telegram_updates_unique")
                ],
            },
        ),
        migrations.RunSQL(
            """
            ALTER TABLE handovers ADD CONSTRAINT handovers_session_id_fkey
                FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE;
            """,
            "ALTER TABLE handovers DROP CONSTRAINT handovers_session_id_fkey;",
        ),
    ]
