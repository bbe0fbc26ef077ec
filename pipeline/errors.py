"""Errors of the pipeline; every one is a PipelineError."""

from __future__ import annotations


class PipelineError(Exception):
    """Root."""
