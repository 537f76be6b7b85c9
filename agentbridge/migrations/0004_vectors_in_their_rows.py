from django.db import migrations


class Migration(migrations.Migration):
    """Keep a vector in the row of its text, where a search reads both, and not in a table beside it.

    PostgreSQL moves values out of rows of more than two kilobytes. Fetching eighty vectors back took as long as all the
    rest of a search. Rows that are there already move at their next `VACUUM FULL`.
    """

    dependencies = [("agentbridge", "0003_smaller_vector_indexes")]

    operations = [
        migrations.RunSQL(
            f"ALTER TABLE {table} SET (toast_tuple_target = 8160)",
            f"ALTER TABLE {table} RESET (toast_tuple_target)",
        )
        for table in ("chunks", "products")
    ]
