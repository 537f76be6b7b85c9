from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0007_questions_in_line")]

    operations = [
        migrations.AddField(
            model_name="message",
            name="superseded_by",
            field=models.UUIDField(editable=False, null=True, verbose_name="vervangen door"),
        ),
        migrations.AddField(
            model_name="message",
            name="branch_hash",
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("branch_hash__isnull", False)), fields=["branch_hash"], name="idx_messages_branch"
            ),
        ),
    ]
