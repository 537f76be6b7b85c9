import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.functions.text
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    # Beside a million messages an index takes a while, and people go on talking meanwhile.
    atomic = False

    dependencies = [("conversations", "0014_figures_and_cleanups")]

    operations = [
        # One that was broken off leaves an index that is of no use, and in the way.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS idx_messages_created_brin", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="message",
            index=django.contrib.postgres.indexes.BrinIndex(
                fields=["created_at"], name="idx_messages_created_brin", pages_per_range=32
            ),
        ),
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS idx_messages_words", migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name="message",
            index=django.contrib.postgres.indexes.GinIndex(
                django.contrib.postgres.search.SearchVector(
                    django.db.models.functions.text.Left("content", 100000), config="simple"
                ),
                name="idx_messages_words",
            ),
        ),
    ]
