from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0019_summaries_hold_or_go"),
    ]

    operations = [
        migrations.AlterField(
            model_name="auditentry",
            name="action",
            field=models.TextField(
                choices=[
                    ("opened", "gesprek geopend"),
                    ("exported", "gesprekken uitgevoerd"),
                    ("deleted", "gesprekken verwijderd"),
                    ("answer_deleted", "antwoord verwijderd"),
                    ("cleaned_up", "opgeschoond"),
                    ("forgotten", "persoon vergeten"),
                    ("pinned", "vastgezet of losgemaakt"),
                    ("handed_over", "gesprek overgedragen"),
                    ("fact_decided", "feit beoordeeld"),
                    ("key_revoked", "sleutel ingetrokken"),
                ],
                editable=False,
                verbose_name="handeling",
            ),
        ),
    ]
