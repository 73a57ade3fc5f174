"""model.list: which models there are, what is said of them, how their providers are."""

from palyra.core.model_view import ModelList
from palyra.net.methods.method import Call, Method, at_once
from palyra.net.params import NoParams


def list_(call: Call, _params: NoParams) -> ModelList:
    return call.services.models.list_all(call.caller)


METHODS = (Method("model.list", NoParams, ModelList, "system:read", at_once(list_)),)
