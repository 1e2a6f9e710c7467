"""What of a verification is sent to Spark's workers."""

from __future__ import annotations

import pickle

from formats.topic_selection import TopicPattern
from replicator.config import Config, from_mapping
from replicator.selection import Selection
from replicator.verify.scope import DIRECT, VerifyScope
from replicator.verify.spark_task import VerifyTask, sent


def config_of(name: str) -> Config:
    return from_mapping(
        {
            "region": name,
            "kafka": {"bootstrap.servers": "k:9092", "sasl.password": f"{name}-kafka"},
            "s3": {"bucket": name, "access_key_id": "AKID", "secret_access_key": f"{name}-s3"},
            "sqs": {"queue": "q", "access_key_id": "AKID", "secret_access_key": f"{name}-sqs"},
            "schema_registry": {"url": "http://r", "username": "u", "password": f"{name}-registry"},
            "metrics": {"listen": "0", "username": "prometheus", "password": f"{name}-metrics"},
        }
    )


def test_of_the_compared_clusters_workers_get_the_credentials_of_the_cluster_only() -> None:
    scope = VerifyScope(kind=DIRECT, cluster=config_of("target"), source_cluster=config_of("source"))
    selection = Selection(region="archive", topics=[TopicPattern("t")])
    task = sent(VerifyTask(config_of("archive"), selection, scope))
    pickled = pickle.dumps(task)
    found = {
        f"{name}-{section}"
        for name in ("archive", "target", "source")
        for section in ("kafka", "s3", "sqs", "registry", "metrics")
        if f"{name}-{section}".encode() in pickled
    }
    assert found == {"archive-s3", "target-kafka", "source-kafka"}
    again = pickle.loads(pickled).scope
    assert again.cluster is not None
    assert again.cluster.cluster.properties("admin") == config_of("target").cluster.properties("admin")
