"""Groups for those who look after EVI. Whoever has changed one of them keeps it as it is."""

from django.conf import settings
from django.db import migrations

READ = {
    ("conversations", "session"): ["view"],
    ("conversations", "message"): ["view"],
    ("conversations", "summary"): ["view"],
    ("conversations", "fact"): ["view"],
    ("agentbridge", "document"): ["view"],
    ("agentbridge", "product"): ["view"],
    ("django_q", "schedule"): ["view"],
    ("django_q", "success"): ["view"],
    ("django_q", "failure"): ["view"],
    ("django_q", "ormq"): ["view"],
}
OPERATE = {
    ("conversations", "session"): ["change", "delete"],
    ("conversations", "fact"): ["add", "change", "delete"],
    ("conversations", "apikey"): ["view"],
    ("conversations", "auditentry"): ["view"],
    ("agentbridge", "document"): ["add", "change"],
    ("agentbridge", "product"): ["add", "change"],
    ("django_q", "failure"): ["change", "delete"],
}
ADMINISTER = {
    ("conversations", "session"): ["read_hidden_contents", "forget_person"],
    ("conversations", "apikey"): ["change", "delete"],
    ("django_q", "schedule"): ["change"],
    ("django_q", "success"): ["delete"],
    ("auth", "user"): ["view", "add", "change", "delete"],
    ("auth", "group"): ["view", "add", "change", "delete"],
}
ROLES = {
    "EVI: kijker": [READ],
    "EVI: operator": [READ, OPERATE],
    "EVI: beheerder": [READ, OPERATE, ADMINISTER],
}
NAMES = {
    "read_hidden_contents": "Mag gesprekken lezen waar EVI_ADMIN_HIDE_CONTENT ze verbergt",
    "forget_person": "Mag een persoon vergeten",
}


def make_roles(apps, schema_editor):
    Group = apps.get_model("auth", "Group")
    for role, parts in ROLES.items():
        group, is_new = Group.objects.get_or_create(name=role)
        if is_new:
            group.permissions.set(
                permission_for(apps, app, model, verb)
                for part in parts
                for (app, model), verbs in part.items()
                for verb in verbs
            )


def permission_for(apps, app, model, verb):
    """The permission itself. Django makes them after all migrations, and finds this one there."""
    kind, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(app_label=app, model=model)
    if verb in NAMES:
        codename, name = verb, NAMES[verb]
    else:
        codename = f"{verb}_{model}"
        name = f"Can {verb} {apps.get_model(app, model)._meta.verbose_name_raw}"
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=kind, codename=codename, defaults={"name": name}
    )
    return permission


def remove_roles(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name__in=ROLES).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0015_indexes_for_staff"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("agentbridge", "0001_knowledge"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [migrations.RunPython(make_roles, remove_roles)]
