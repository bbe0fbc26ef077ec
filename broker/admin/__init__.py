"""The admin REST API, HTTP lookup, health and metrics: a starlette application over `api.BrokerApi`."""
