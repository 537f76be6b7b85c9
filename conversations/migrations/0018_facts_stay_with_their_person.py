from django.db import migrations

FUNCTION = """
    CREATE OR REPLACE FUNCTION facts_follow_their_sources() RETURNS trigger LANGUAGE plpgsql
        SET search_path FROM CURRENT AS $$
    BEGIN
        -- Of two that take the last sources at once, the second looks when the first is done.
        PERFORM FROM facts WHERE id IN (SELECT fact_id FROM gone) ORDER BY id FOR UPDATE;
        DELETE FROM facts WHERE id IN (SELECT fact_id FROM gone{of_messages_that_are_gone})
            AND NOT EXISTS (SELECT FROM fact_sources WHERE fact_id = facts.id);
        RETURN NULL;
    END $$;
"""
# A session that goes to somebody else takes its messages along, and no facts about the one who said them.
OF_MESSAGES_THAT_ARE_GONE = " WHERE NOT EXISTS (SELECT FROM messages WHERE id = gone.message_id)"


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0017_texts_without_vectors"),
    ]

    operations = [
        migrations.RunSQL(
            FUNCTION.format(of_messages_that_are_gone=OF_MESSAGES_THAT_ARE_GONE),
            FUNCTION.format(of_messages_that_are_gone=""),
        ),
    ]
