"""Each pipeline of the demo and of all example projects is a job on Spark."""

import pytest

from caraway.apps.demo.example import load_example
from caraway.client import arguments
from caraway.graph.envs import for_env
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from tests.projects import NAMES, load


def uncomputed(graph: Graph) -> set[tuple[str, str]]:
    """Return the pipelines of a graph without a job that writes the topic of their dataset."""
    plan = plan_graph(graph)
    topics = {topic.name for topic in plan.topics}
    jobs = {(job.dataset, job.pipeline) for job in plan.jobs if job.output.name in topics}
    return {(spec.name, pipeline.name) for spec in graph.datasets for pipeline in spec.pipelines} - jobs


def test_each_pipeline_of_the_demo_is_a_job() -> None:
    example = load_example()
    graph = arguments.gather(example.datasets, example.featuresets)
    assert sum(bool(spec.pipelines) for spec in graph.datasets) == 5
    assert not uncomputed(graph)


@pytest.mark.parametrize("name", NAMES)
def test_each_pipeline_of_a_project_is_a_job(name: str) -> None:
    project = load(name)
    graph = for_env(arguments.gather(project.datasets, project.featuresets), project.env)
    assert any(spec.pipelines for spec in graph.datasets)
    assert not uncomputed(graph)
