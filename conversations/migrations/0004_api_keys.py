import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("conversations", "0003_sessions_follow_their_messages"),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("digest", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("token_key", models.CharField(db_index=True, max_length=25)),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("expiry", models.DateTimeField(blank=True, null=True)),
                ("name", models.TextField(verbose_name="naam")),
                ("last_used_at", models.DateTimeField(editable=False, null=True, verbose_name="laatst gebruikt")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="auth_token_set",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "API-sleutel",
                "verbose_name_plural": "API-sleutels",
                "db_table": "api_keys",
                "ordering": ["user__username", "name"],
            },
        ),
    ]
