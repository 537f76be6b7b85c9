from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class EviSiteConfig(AppConfig):
    name = "evi_site"
    verbose_name = "EVI"


class EviAdminConfig(AdminConfig):
    default_site = "evi_site.admin_site.EviAdminSite"
