from django.db import migrations

# Any number of dimensions: another model than the bundled one may have made an index too.
REPLACE = """
    DO $$
    DECLARE old record;
    BEGIN
        FOR old IN
            SELECT pg_class.relname AS name, tables.relname AS searched, substring(pg_class.relname FROM '[0-9]+$') AS dimensions
            FROM pg_index
                JOIN pg_class ON pg_class.oid = indexrelid
                JOIN pg_class AS tables ON tables.oid = indrelid
            WHERE pg_class.relname ~ '^idx_(chunks|products)_embedding_[0-9]+$'
                AND pg_class.relnamespace = current_schema()::regnamespace
                AND substring(pg_class.relname FROM '[0-9]+$')::int <= {most}
        LOOP
            EXECUTE format('DROP INDEX %I', old.name);
            EXECUTE format(
                'CREATE INDEX %I ON %I USING hnsw ((embedding::{kind}(%s)) {kind}_cosine_ops) '
                'WHERE retired_at IS NULL AND vector_dims(embedding) = %s',
                old.name, old.searched, old.dimensions, old.dimensions
            );
        END LOOP;
    END $$
"""


class Migration(migrations.Migration):
    dependencies = [("agentbridge", "0002_search")]

    operations = [
        migrations.RunSQL(
            REPLACE.replace("{most}", "4000").replace("{kind}", "halfvec"),
            REPLACE.replace("{most}", "2000").replace("{kind}", "vector"),
        )
    ]
