"""Why a number differs from the printed one: what was tried, and what came out. Nothing here is a guess."""

from __future__ import annotations

REASONS: dict[tuple[str, str, str, str], str] = {}


def reason_for(artefact: str, setting: str, method: str, measure: str) -> str:
    """The reason on record for a number, or nothing."""
    return REASONS.get((artefact, setting, method, measure), "")
