import django.contrib.postgres.functions
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0008_branches")]

    operations = [
        migrations.CreateModel(
            name="Attachment",
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
                ("digest", models.TextField(editable=False)),
                ("media_type", models.TextField(verbose_name="soort")),
                ("name", models.TextField(blank=True, db_default="", verbose_name="naam")),
                ("size", models.IntegerField(verbose_name="bytes")),
                ("content", models.BinaryField()),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False, verbose_name="tijd"
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="attachments",
                        to="conversations.session",
                    ),
                ),
            ],
            options={"verbose_name": "bijlage", "verbose_name_plural": "bijlagen", "db_table": "attachments"},
        ),
        migrations.AddConstraint(
            model_name="attachment",
            constraint=models.UniqueConstraint(fields=("session", "digest"), name="attachments_unique"),
        ),
        # Gone with its session, whoever deletes that.
        migrations.RunSQL(
            """
            ALTER TABLE attachments ADD CONSTRAINT attachments_session_id_fkey
                FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
            """,
            "ALTER TABLE attachments DROP CONSTRAINT attachments_session_id_fkey",
        ),
    ]
