from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from evi_site import health

# It has no template for what DRF answers to OPTIONS.
docs = SpectacularSwaggerView.as_view(url_name="schema", http_method_names=["get", "head"])

handler400 = "evi_site.failures.bad_request"
handler404 = "evi_site.failures.not_found"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", docs, name="api-docs"),
    path("", include("conversations.urls")),
]
