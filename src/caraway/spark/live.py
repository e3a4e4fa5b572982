"""What running queries have read since their last checkpoint.

In real-time mode Spark tells of a query's progress at its checkpoints, minutes apart. What its tasks have read comes
with the executors' heartbeats, on a cluster too, and is kept for Spark's own pages.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from caraway.spark.java import java_session, jvm_of


def live_rows(session: SparkSession) -> Mapping[str, int]:
    """Return rows by the id of a query's run."""
    jvm = jvm_of(session)
    running = jvm.java.util.ArrayList()
    running.add(jvm.org.apache.spark.JobExecutionStatus.RUNNING)
    store = java_session(session).sparkContext().statusStore()
    jobs = store.jobsList(running)
    rows: dict[str, int] = {}
    for number in range(jobs.size()):
        job = jobs.apply(number)
        run = job.jobGroup()
        stages = job.stageIds()
        if run.isEmpty():
            continue
        read = sum(store.lastStageAttempt(stages.apply(i)).inputRecords() for i in range(stages.size()))
        rows[run.get()] = rows.get(run.get(), 0) + read
    return rows
