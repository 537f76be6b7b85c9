from django.db import migrations

# What was edited, left or deleted is not to be found in a summary either: the next quiet half hour brings another one.
FUNCTION = """
    CREATE FUNCTION summaries_hold_or_go() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        DELETE FROM summaries WHERE session_id = OLD.session_id AND last_seq >= OLD.seq;
        RETURN NULL;
    END $$;
    CREATE TRIGGER summaries_hold_or_go_after_change AFTER UPDATE OF superseded_by, content, role ON messages
        FOR EACH ROW WHEN ((NEW.superseded_by, NEW.content, NEW.role)
            IS DISTINCT FROM (OLD.superseded_by, OLD.content, OLD.role))
        EXECUTE FUNCTION summaries_hold_or_go();

    -- A session's messages go by the hundred, and one look is enough for all of them.
    CREATE FUNCTION summaries_hold_or_go_together() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        DELETE FROM summaries USING (SELECT session_id, min(seq) AS seq FROM gone GROUP BY session_id) AS first_gone
            WHERE summaries.session_id = first_gone.session_id AND last_seq >= first_gone.seq;
        RETURN NULL;
    END $$;
    CREATE TRIGGER summaries_hold_or_go_after_deletion AFTER DELETE ON messages
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION summaries_hold_or_go_together();
"""
NO_FUNCTION = """
    DROP TRIGGER summaries_hold_or_go_after_deletion ON messages;
    DROP FUNCTION summaries_hold_or_go_together();
    DROP TRIGGER summaries_hold_or_go_after_change ON messages;
    DROP FUNCTION summaries_hold_or_go();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0018_facts_stay_with_their_person"),
    ]

    operations = [migrations.RunSQL(FUNCTION, NO_FUNCTION)]
