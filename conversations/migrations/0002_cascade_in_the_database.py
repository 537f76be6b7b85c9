from django.db import migrations


class Migration(migrations.Migration):
    """Deleting a session deletes its messages, whoever deletes it and however."""

    dependencies = [("conversations", "0001_sessions_and_messages")]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE messages ADD CONSTRAINT messages_session_id_fkey
                FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
            """,
            "ALTER TABLE messages DROP CONSTRAINT messages_session_id_fkey",
        ),
    ]
