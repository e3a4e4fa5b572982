"""A plugin for mypy, switched on in its settings by `plugins = ["caraway.integrations.mypy"]`.

Without the plugin mypy sees a decorated class as its body describes it. With it `Orders` is a dataset, `Orders.amount`
a field and `User.age` a feature; struct classes have `expr` and `zip`; `Decimal[2]` and `Embedding[8]` are types.
"""

from collections.abc import Callable
from functools import partial

from mypy.errorcodes import ATTR_DEFINED
from mypy.nodes import ARG_STAR2, Argument, AssignmentStmt, NameExpr, PlaceholderNode, TypeInfo, Var
from mypy.plugin import AnalyzeTypeContext, AttributeContext, ClassDefContext, Plugin, SemanticAnalyzerPluginInterface
from mypy.plugins.common import add_method_to_class
from mypy.plugins.dataclasses import dataclass_class_maker_callback
from mypy.types import AnyType, CallableType, Instance, Type, TypeOfAny, TypeType, get_proper_type

DATASET = "caraway.datasets.dataset.Dataset"
FEATURESET = "caraway.featuresets.featureset.Featureset"

# For each decorator, the class whose attributes the decorated class gets, and the type of the names annotated in it.
_DECORATORS = {
    "caraway.datasets.dataset.dataset": ("caraway.datasets.dataset.DatasetClass", "caraway.datasets.fields.Field"),
    "caraway.featuresets.featureset.featureset": (
        "caraway.featuresets.featureset.FeaturesetClass",
        "caraway.featuresets.features.Feature",
    ),
}
_STRUCT = "caraway.dtypes.structs.struct"
_STRUCT_METHODS = {
    "expr": "caraway.expr.namespaces.records.StructExpr",
    "zip": "caraway.expr.namespaces.lists.ListExpr",
}
_DECIMAL = "caraway.dtypes.restrictions.Decimal"
_EMBEDDING = "caraway.dtypes.restrictions.Embedding"


class CarawayPlugin(Plugin):
    """Adds to decorated classes the attributes that the decorators add."""

    def get_class_decorator_hook_2(self, fullname: str) -> Callable[[ClassDefContext], bool] | None:
        """Return the function that changes a class below the decorator of this name."""
        if fullname in _DECORATORS:
            return partial(_decorated, *_DECORATORS[fullname])
        return _struct if fullname == _STRUCT else None

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        """Return the function that checks an attribute which the class of datasets or featuresets doesn't define."""
        owner, _, name = fullname.rpartition(".")
        if owner == DATASET:
            return partial(_unknown, "dataset", "field", name)
        return partial(_unknown, "featureset", "feature", name) if owner == FEATURESET else None

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        """Return the function that types `Decimal[2]` and its like, whose arguments are no types."""
        hooks = {_DECIMAL: _decimal, _EMBEDDING: _embedding, DATASET: _dataset}
        return hooks.get(fullname)


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001 (mypy's signature)
    """Return the plugin, as mypy asks for it."""
    return CarawayPlugin


def _decorated(metaclass: str, member: str, ctx: ClassDefContext) -> bool:
    """Make a class behave as an object of `metaclass` whose annotated names are objects of `member`.

    Return False if mypy doesn't know one of the two types yet; mypy calls this again then.
    """
    found = [_class(ctx.api, name) for name in (metaclass, member)]
    if None in found:
        return False
    of, item = (Instance(info, []) for info in found if info is not None)
    ctx.cls.info.metaclass_type = ctx.cls.info.declared_metaclass = of
    for statement in ctx.cls.defs.body:
        if isinstance(statement, AssignmentStmt) and statement.unanalyzed_type is not None:
            for target in statement.lvalues:
                if isinstance(target, NameExpr) and isinstance(target.node, Var):
                    target.node.type = item
    return True


def _unknown(kind: str, part: str, name: str, ctx: AttributeContext) -> Type:
    """Report an unknown attribute of a dataset or featureset whose body mypy knows.

    A parameter `orders: Dataset` stands for any dataset, so that any attribute is allowed.
    """
    owner = get_proper_type(ctx.type)
    if isinstance(owner, CallableType) and owner.is_type_obj():
        owner = get_proper_type(owner.ret_type)
    elif isinstance(owner, TypeType):
        owner = owner.item
    if isinstance(owner, Instance) and (of := owner.type.metaclass_type) is not None and of.type.get(name) is None:
        ctx.api.fail(f'{kind} "{owner.type.name}" has no {part} "{name}"', ctx.context, code=ATTR_DEFINED)
    return ctx.default_attr_type


def _struct(ctx: ClassDefContext) -> bool:
    """Make a class a dataclass, with the class methods that build expressions."""
    if not dataclass_class_maker_callback(ctx):
        return False
    anything = AnyType(TypeOfAny.explicit)
    for name, returned in _STRUCT_METHODS.items():
        if name in ctx.cls.info.names:
            continue
        # mypy doesn't know the returned type if the checked program doesn't import the module that defines it, not even
        # indirectly. The method then returns Any.
        info = _class(ctx.api, returned)
        fields = Argument(Var("fields", anything), anything, None, ARG_STAR2)
        add_method_to_class(
            ctx.api, ctx.cls, name, [fields], anything if info is None else Instance(info, []), is_classmethod=True
        )
    if "as_json" not in ctx.cls.info.names:
        document = ctx.api.named_type("builtins.dict", [ctx.api.named_type("builtins.str", []), anything])
        add_method_to_class(ctx.api, ctx.cls, "as_json", [], document)
    return True


def _decimal(ctx: AnalyzeTypeContext) -> Type:
    return ctx.api.named_type("decimal.Decimal", [])


def _embedding(ctx: AnalyzeTypeContext) -> Type:
    return ctx.api.named_type("builtins.list", [ctx.api.named_type("builtins.float", [])])


def _dataset(ctx: AnalyzeTypeContext) -> Type:
    # `Dataset[Orders]` is the same type as `Dataset`: the name in the brackets informs readers, and mypy ignores it.
    return ctx.api.named_type(DATASET, [])


def _class(api: SemanticAnalyzerPluginInterface, name: str) -> TypeInfo | None:
    symbol = api.lookup_fully_qualified_or_none(name)
    if symbol is None or isinstance(symbol.node, PlaceholderNode):
        return None
    return symbol.node if isinstance(symbol.node, TypeInfo) else None
