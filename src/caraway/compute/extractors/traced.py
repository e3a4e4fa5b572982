"""Extractors that are equal to expressions, which a process of users' functions finds and this process computes."""

from collections.abc import Mapping

import cloudpickle

from caraway.compute.query.batch import Batch, Run
from caraway.compute.query.expressions import compile_expressions
from caraway.compute.query.model import Computed, ExpressionStep, PythonStep
from caraway.errors import InvalidInputError
from caraway.expr.nodes import Node
from caraway.graph.runtime import ShippedExtractor
from caraway.graph.tracing.extractors import trace_extractor

#: The expression of each output over the inputs, both by full name.
Expressions = Mapping[str, Node]


def expressions_of(step: PythonStep) -> Expressions | None:
    """Return the expressions to which an extractor is equal, None if there are none; this calls the user's function."""
    inputs = [(column.name, column.dtype) for column in step.inputs if column.dtype is not None]
    # `kept` lacks the outputs that callers supply themselves. In this rare case the extractor stays a function, because
    # a call of the function checks these outputs as well.
    if step.datasets or len(inputs) < len(step.inputs) or len(step.kept) < len(step.outputs):
        return None
    pickled = cloudpickle.loads(step.pickled)
    function = pickled.function if isinstance(pickled, ShippedExtractor) else pickled
    full_names = {name.partition(".")[2]: name for name, _ in step.outputs}
    found = trace_extractor(function, inputs, [(name.partition(".")[2], dtype) for name, dtype in step.outputs])
    return None if found is None else {full_names[name]: node for name, node in found.items()}


class TracedExtractor:
    """Computes the outputs of an extractor by the expressions to which it is equal.

    Attributes:
        features: The outputs with their expressions.
    """

    def __init__(self, step: PythonStep, found: Expressions) -> None:
        types = dict(step.outputs)
        self.features = tuple(Computed(column=name, dtype=types[name], expr=node) for name, node in found.items())
        # Inputs of several featuresets may have the same bare name, so these expressions use full names.
        inputs = tuple((c.name, c.name, c.dtype) for c in step.inputs if c.dtype is not None)
        self._run: Run = compile_expressions(ExpressionStep(inputs=inputs, features=self.features))

    def fills(self, batch: Batch) -> bool:
        """Add the outputs to a batch; return False if they are invalid, so that the function is called and raises."""
        try:
            self._run(batch)
        except InvalidInputError:
            return False
        return True
