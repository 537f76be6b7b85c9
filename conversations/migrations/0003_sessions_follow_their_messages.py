from django.db import migrations


class Migration(migrations.Migration):
    """A session counts its messages and knows when one was last written, whoever writes it."""

    dependencies = [("conversations", "0002_cascade_in_the_database")]

    operations = [
        migrations.RunSQL(
            """
            CREATE FUNCTION messages_added() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                UPDATE sessions SET
                    message_count = message_count + added.number,
                    updated_at = clock_timestamp(),
                    -- Inside a turn the session was touched a moment ago; leaving it alone spares the indexes.
                    last_accessed = greatest(last_accessed, transaction_timestamp())
                FROM (SELECT session_id, count(*) AS number FROM new_messages GROUP BY session_id) AS added
                WHERE sessions.id = added.session_id;
                RETURN NULL;
            END $$;

            CREATE FUNCTION messages_removed() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                UPDATE sessions SET message_count = message_count - removed.number, updated_at = clock_timestamp()
                FROM (SELECT session_id, count(*) AS number FROM old_messages GROUP BY session_id) AS removed
                WHERE sessions.id = removed.session_id;
                RETURN NULL;
            END $$;

            CREATE TRIGGER messages_added AFTER INSERT ON messages
                REFERENCING NEW TABLE AS new_messages FOR EACH STATEMENT EXECUTE FUNCTION messages_added();
            CREATE TRIGGER messages_removed AFTER DELETE ON messages
                REFERENCING OLD TABLE AS old_messages FOR EACH STATEMENT EXECUTE FUNCTION messages_removed();

            UPDATE sessions SET message_count = counted.number
            FROM (SELECT session_id, count(*) AS number FROM messages GROUP BY session_id) AS counted
            WHERE sessions.id = counted.session_id;
            """,
            """
            DROP TRIGGER messages_added ON messages;
            DROP TRIGGER messages_removed ON messages;
            DROP FUNCTION messages_added();
            DROP FUNCTION messages_removed();
            """,
        ),
    ]
