"""model.list: the configured models, their capabilities, and the state of their providers."""

from palyra.core.model.views import ModelList
from palyra.net.api.method import Method, MethodCall, at_once
from palyra.net.protocol.params import NoParams


def list_(call: MethodCall, _params: NoParams) -> ModelList:
    return call.backend.models.list_all(call.caller)


METHODS = (Method("model.list", NoParams, ModelList, "system:read", at_once(list_)),)
