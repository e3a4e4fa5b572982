"""The serializer of expressions, as the public API has it."""

from caraway.expr.expressions import Expr
from caraway.graph.pb.caraway.v1.expressions_pb2 import Expr as ExprMessage
from caraway.graph.wire.messages import encode_expr


class ExprSerializer:
    """Turns expressions into the form in which a commit sends them."""

    def serialize(self, expr: Expr) -> ExprMessage:
        """Return the protobuf message of an expression (`proto/caraway/v1/expressions.proto`).

        Raises `InvalidExprException` if the expression is incomplete.
        """
        return encode_expr(expr.node)
