"""Creates the clients of a cluster: the one place where properties of the settings become a client.

librdkafka asks for a token for SASL/OAUTHBEARER in a callback. The client serves it on a thread of its own, from its
creation on (confluent_kafka 2.13 and newer), so a client that is not polled, such as an idle producer, has fresh
tokens, too. It asks for the next one within a second after four fifths of a token's time. Creating a client waits for
its first token, up to a second, and where none is made, for ten: therefore the first one is made before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from formats.errors import ConfigError
from infra.kafka.client.log import client_log
from infra.kafka.client.own_certificate import own_certificate, warn_if_not_valid
from infra.kafka.client.tokens import token_callback
from infra.settings.field import dotted
from infra.settings.kafka import AUTH_NAMES

_FILE = re.compile(r"(?P<name>ssl\.[a-z.]+) failed: (?P<why>.*)", re.DOTALL)

Client = TypeVar("Client", Consumer, Producer, AdminClient)


def connect(kind: type[Client], properties: Mapping[str, object], logger: Any = client_log) -> Client:
    """A client of this kind, which connects in the background. `properties`: those of `KafkaSettings.properties`, and
    callbacks. Raises KafkaException for properties that the client refuses, ConfigError when this process cannot make
    tokens, and BrokerUnavailable when it made none this time."""
    own: dict[str, Any] = {name: value for name, value in properties.items() if name not in AUTH_NAMES}
    if (certificate := own_certificate(properties)) is not None:
        warn_if_not_valid(certificate, datetime.now(UTC))
    callback = token_callback(properties)
    if callback is not None:
        callback.make_first()
        own["oauth_cb"] = callback
    try:
        return kind(own, logger=logger)
    except KafkaException as error:
        found = _FILE.search(str(error.args[0].str()))
        if found is None:
            raise
        raise ConfigError([_unfit_file(found["name"], found["why"], properties)]) from error


def _unfit_file(name: str, why: str, properties: Mapping[str, object]) -> str:
    """About a certificate or a key that the client cannot load. The text of a PEM is not quoted: it may be a key."""
    where = f" ({properties.get(name)})" if name.endswith("location") else ""
    password = ", and that ssl.key.password fits it" if ".key" in name else ""
    return f"{dotted(('kafka', name))}: cannot be loaded{where}: {why}; check that it exists and is PEM{password}"
