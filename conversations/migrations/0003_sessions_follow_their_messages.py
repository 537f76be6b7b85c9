from django.db import migrations


class Migration(migrations.Migration):
    """A session counts its messages and knows when one was last written, whoever writes it."""

    dependencies = [("conversations", "0002_cascade_in_the_database")]

    operations = [
        migrations.RunSQL(
            """
            -- A restore runs with an empty search path: each function remembers where its tables are.
            CREATE FUNCTION messages_added() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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

            CREATE FUNCTION messages_removed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                UPDATE sessions SET message_count = message_count - removed.number, updated_at = clock_timestamp()
                FROM (SELECT session_id, count(*) AS number FROM old_messages GROUP BY session_id) AS removed
                WHERE sessions.id = removed.session_id;
                RETURN NULL;
            END $$;

            CREATE FUNCTION messages_truncated() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
            BEGIN
                UPDATE sessions SET message_count = 0, updated_at = clock_timestamp() WHERE message_count <> 0;
                RETURN NULL;
            END $$;

            CREATE FUNCTION messages_stay() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'A message cannot move to another session' USING ERRCODE = 'integrity_constraint_violation';
            END $$;

            CREATE FUNCTION sessions_changed() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                NEW.updated_at := clock_timestamp();
                RETURN NEW;
            END $$;

            CREATE TRIGGER messages_truncated AFTER TRUNCATE ON messages
                FOR EACH STATEMENT EXECUTE FUNCTION messages_truncated();
            CREATE TRIGGER messages_stay BEFORE UPDATE OF session_id ON messages
                FOR EACH ROW WHEN (NEW.session_id IS DISTINCT FROM OLD.session_id) EXECUTE FUNCTION messages_stay();
            CREATE TRIGGER sessions_changed BEFORE UPDATE OF title, pinned, metadata, expires_at ON sessions
                FOR EACH ROW EXECUTE FUNCTION sessions_changed();
            CREATE TRIGGER messages_added AFTER INSERT ON messages
                REFERENCING NEW TABLE AS new_messages FOR EACH STATEMENT EXECUTE FUNCTION messages_added();
            CREATE TRIGGER messages_removed AFTER DELETE ON messages
                REFERENCING OLD TABLE AS old_messages FOR EACH STATEMENT EXECUTE FUNCTION messages_removed();

            UPDATE sessions SET message_count = counted.number
            FROM (SELECT session_id, count(*) AS number FROM messages GROUP BY session_id) AS counted
            WHERE sessions.id = counted.session_id;
            """,
            """
            DROP TRIGGER sessions_changed ON sessions;
            DROP TRIGGER messages_stay ON messages;
            DROP TRIGGER messages_truncated ON messages;
            DROP FUNCTION sessions_changed();
            DROP FUNCTION messages_stay();
            DROP FUNCTION messages_truncated();
            DROP TRIGGER messages_added ON messages;
            DROP TRIGGER messages_removed ON messages;
            DROP FUNCTION messages_added();
            DROP FUNCTION messages_removed();
            """,
        ),
    ]
