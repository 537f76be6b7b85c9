from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agentbridge", "0004_vectors_in_their_rows"),
    ]

    operations = [
        migrations.AddField(
            model_name="document",
            name="withdrawn",
            field=models.BooleanField(db_default=False, editable=False, verbose_name="ingetrokken"),
        ),
        migrations.AddField(
            model_name="product",
            name="withdrawn",
            field=models.BooleanField(db_default=False, editable=False, verbose_name="ingetrokken"),
        ),
    ]
