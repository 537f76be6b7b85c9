"""EVI's PostgreSQL: Django's database engine (`base`), and a server of its own where there is none (`cluster`)."""
