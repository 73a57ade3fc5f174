"""policy.*: rules from the answers given so far, rules for one call, and their undo."""

from typing import Annotated

import msgspec

from palyra.core.policy.suggestion import MIN_ANSWERS
from palyra.core.policy.views import AppliedSuggestion, RuleFor, SuggestionList
from palyra.net.api.method import Id, Method, MethodCall, Mutation
from palyra.net.protocol.params import Params

_SuggestionId = Annotated[str, msgspec.Meta(pattern=r"^sug_[0-9a-f]{16}$")]
_Answers = Annotated[int, msgspec.Meta(ge=2, le=1_000)]


class PolicySuggest(Params, frozen=True, kw_only=True):
    """Rules that would have given at least `min_answers` answers."""

    min_answers: _Answers = MIN_ANSWERS
    folders: bool = False  # instead of lists of paths


class PolicyApplySuggestion(Mutation, frozen=True, kw_only=True):
    """A rule of `policy.suggest` with the same `min_answers` and `folders`."""

    suggestion_id: _SuggestionId
    min_answers: _Answers = MIN_ANSWERS
    folders: bool = False  # instead of lists of paths


class PolicyUndo(Mutation, frozen=True, kw_only=True):
    """An applied suggestion, by default the newest."""

    suggestion_id: _SuggestionId | None = None


class PolicyRuleFor(Params, frozen=True, kw_only=True):
    """The narrowest rule for the call of an approval."""

    approval_id: Id


class PolicyAllowFrom(Mutation, frozen=True, kw_only=True):
    """The narrowest rule for the call of an approval, to be written."""

    approval_id: Id


async def rule_for(call: MethodCall, params: PolicyRuleFor) -> RuleFor:
    return await call.backend.suggestions.rule_for(call.caller, params.approval_id)


async def allow_from(call: MethodCall, params: PolicyAllowFrom) -> RuleFor:
    return await call.once(
        RuleFor,
        lambda: call.backend.suggestions.rule_for(call.caller, params.approval_id, writes=True),
    )


async def suggest(call: MethodCall, params: PolicySuggest) -> SuggestionList:
    return await call.backend.suggestions.suggest(
        call.caller, params.min_answers, with_folders=params.folders
    )


async def apply(call: MethodCall, params: PolicyApplySuggestion) -> AppliedSuggestion:
    return await call.once(
        AppliedSuggestion,
        lambda: call.backend.suggestions.apply(
            call.caller,
            params.suggestion_id,
            params.min_answers,
            with_folders=params.folders,
        ),
    )


async def undo(call: MethodCall, params: PolicyUndo) -> AppliedSuggestion:
    return await call.once(
        AppliedSuggestion,
        lambda: call.backend.suggestions.undo(call.caller, params.suggestion_id),
    )


METHODS = (
    Method("policy.suggest", PolicySuggest, SuggestionList, "policies:read", suggest, is_bulk=True),
    Method(
        "policy.apply_suggestion", PolicyApplySuggestion, AppliedSuggestion, "policies:write", apply
    ),
    Method(
        "policy.rule_for",
        PolicyRuleFor,
        RuleFor,
        "policies:write",
        rule_for,
        is_bulk=True,
        is_read=True,
    ),
    Method("policy.allow_from", PolicyAllowFrom, RuleFor, "policies:write", allow_from),
    Method("policy.undo", PolicyUndo, AppliedSuggestion, "policies:write", undo),
)
