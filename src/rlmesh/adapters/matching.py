"""Which leaf of the env a role of the model means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlmesh.adapters.advisory import AdapterResolutionError, Advisory
from rlmesh.adapters.features import EnvFeatures, ImageFeature, StateFeature, TextFeature
from rlmesh.adapters.vocabulary import is_registered

__all__ = ["Findings", "check_frame", "match_part", "match_provenance", "offer", "refuse_unknown"]

FeatureT = TypeVar("FeatureT", ImageFeature, StateFeature, TextFeature)


@dataclass
class Findings:
    """What resolving finds worth saying; ``notes`` are also printed under ``dropped:``."""

    notes: list[Advisory] = field(default_factory=list[Advisory])
    others: list[Advisory] = field(default_factory=list[Advisory])

    def note(self, severity: Any, code: str, message: str) -> None:
        """An advisory that explain() prints."""
        self.notes.append(Advisory(severity, message, code))

    def add(self, severity: Any, code: str, message: str) -> None:
        """An advisory."""
        advisory = Advisory(severity, message, code)
        if advisory not in self.others:
            self.others.append(advisory)

    def unmatched(self, side: str, other: str, role: str) -> None:
        """A role outside the registry that the other side lacks."""
        if not is_registered(role):
            self.note(
                "info",
                "unmatched-role",
                f'{side} declares ad-hoc role "{role}" that {other} does not have; an ad-hoc role '
                "matches only the exact same string: use a registered role, or x/... to mark it as "
                "private",
            )


def quoted(names: Iterable[str | None]) -> str:
    """Names as a message lists them."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def offer(features: Sequence[Any]) -> str:
    """The roles on offer, with their parts."""
    return quoted(f"{item.role}#{item.part}" if item.part else item.role for item in features)


def with_part(role: str, part: str | None) -> str:
    """A role as a message names it."""
    return f'"{role}" (part "{part}")' if part else f'"{role}"'


def match_part(
    features: Sequence[FeatureT],
    kind: str,
    role: str,
    part: str | None,
    placement: str,
    findings: Findings,
) -> list[FeatureT]:
    """The features of a role that belong to the part meant; [] where the env has none.

    Raises:
        AdapterResolutionError: no part was named and the env has several.
    """
    found = [item for item in features if item.role == role]
    if part is not None:
        return [item for item in found if item.part == part]
    whole = [item for item in found if item.part is None]
    if whole or not found:
        return whole
    parts = sorted({str(item.part) for item in found})
    if len(parts) > 1:
        raise AdapterResolutionError(
            f'model input "{placement}" needs {kind} role "{role}" but the env declares it under '
            f"parts {quoted(parts)}; declare part= to name one"
        )
    findings.add(
        "info",
        "lone-part",
        f'model input "{placement}": {kind} role "{role}" declares no part and the env declares it '
        f'only under part "{parts[0]}"; bound to that leaf (declare part= to pin it)',
    )
    return found


def match_provenance(
    found: Sequence[StateFeature],
    role: str,
    accepted: tuple[str, ...],
    placement: str,
    findings: Findings,
) -> StateFeature:
    """The one feature of a role whose values come from where the model wants them.

    Raises:
        AdapterResolutionError: several and none asked for, or none that is accepted.
    """
    declared = sorted({item.provenance or "none" for item in found})
    if not accepted:
        if len(found) > 1:
            raise AdapterResolutionError(
                f'model input "{placement}": state role "{role}" declares no provenance and the '
                f"env declares it under provenances {quoted(declared)}; declare provenance= to pin "
                "one"
            )
        return found[0]
    for wanted in accepted:
        for item in found:
            if item.provenance == wanted:
                return item
    silent = [item for item in found if item.provenance is None]
    if silent:
        findings.add(
            "caution",
            "unverified-provenance",
            f'role "{role}": the model declares provenance {quoted(accepted)} but the env declares '
            "none, so where the values come from cannot be verified; declare it on the env",
        )
        return silent[0]
    if len(found) > 1:
        raise AdapterResolutionError(
            f'model input "{placement}": state role "{role}" accepts provenance {quoted(accepted)} '
            f"but the env declares it under {quoted(declared)}"
        )
    raise AdapterResolutionError(
        f'role "{role}": the model expects provenance {quoted(accepted)} but the env declares '
        f'"{declared[0]}" (model input "{placement}")'
    )


def check_frame(
    what: str, role: str, wanted: str | None, given: str | None, findings: Findings
) -> str | None:
    """The frame (or reference) of a role, checked on both sides; None where neither says.

    Raises:
        AdapterResolutionError: the two sides declare different ones.
    """
    if wanted is not None and given is not None and wanted != given:
        raise AdapterResolutionError(
            f'role "{role}": the model expects {what} "{wanted}" but the env declares "{given}"; '
            "the adapter does not convert between them"
        )
    if wanted is not None and given is None:
        findings.add(
            "caution",
            f"unverified-{what}",
            f'role "{role}": the model declares {what} "{wanted}" but the env declares none, so '
            f"the {what} it was trained with cannot be verified; declare it on the env",
        )
    return wanted if wanted is not None else given


def refuse_unknown(env: EnvFeatures, role: str, placement: str) -> None:
    """Raise AdapterResolutionError where the role stands on a leaf this version cannot read."""
    for item in env.unknown:
        if item.role == role:
            raise AdapterResolutionError(
                f'model input "{placement}" needs role "{role}", which the env declares on a leaf '
                f'of unrecognized kind "{item.kind}"; upgrade rlmesh to one that knows it'
            )
