"""Traces of publishes and deliveries (OpenTelemetry): loaded only where `tracesEnabled` is set."""
