from django.apps import AppConfig


class AgentbridgeConfig(AppConfig):
    name = "agentbridge"
    verbose_name = "Kennis"
